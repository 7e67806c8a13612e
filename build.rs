//! Compiles `proto/` with protox (pure Rust, no `protoc`) into `OUT_DIR`.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    let mut protos = Vec::new();
    collect(Path::new("proto"), &mut protos)?;
    protos.sort();
    let descriptors = protox::compile(&protos, ["proto"])?;
    prost_build::Config::new()
        // `Any.value` must be `Bytes`, so that a response is split instead of copied; that takes our own
        // `google.protobuf.Any`.
        .compile_well_known_types()
        .bytes(["."])
        // Maps are read in a fixed order, so that the same bytes always give the same resource.
        .btree_map(["."])
        .include_file("pb.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            into.push(path);
        }
    }
    Ok(())
}

//! Writes the messages of `proto/` as Rust to `proto/generated/`, if `RUSTFLAGS` has `--cfg xdskit_generate`: `.ci/generate.sh`
//! sets it. Any other build takes what is there, and compiles no compiler of protobuf.

#[cfg(not(xdskit_generate))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}

#[cfg(xdskit_generate)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    generate::write(std::path::Path::new("proto/generated"))
}

#[cfg(xdskit_generate)]
mod generate {
    use std::{
        error::Error,
        fs, io,
        path::{Path, PathBuf},
    };

    use protox::prost::Message;

    /// Compiles `proto/` with protox (pure Rust, no `protoc`) into a folder, which is emptied before.
    pub(crate) fn write(out: &Path) -> Result<(), Box<dyn Error>> {
        println!("cargo:rerun-if-changed=proto");
        let mut protos = Vec::new();
        collect(Path::new("proto"), &mut protos)?;
        protos.sort();
        let mut descriptors = protox::compile(&protos, ["proto"])?;
        // What the feature `json` goes by, without the comments.
        for file in &mut descriptors.file {
            file.source_code_info = None;
        }
        if out.is_dir() {
            fs::remove_dir_all(out)?;
        }
        fs::create_dir_all(out)?;
        fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
        prost_build::Config::new()
            .out_dir(out)
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
}

//! Secrets by SDS from a file, which Envoy Gateway, Contour and others give to Envoy for the connection to themselves.
//!
//! The file is read when the bootstrap is. It has the names of the files with certificates and keys, which are read for each
//! connection, so certificates can be replaced at any time.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde_json::Value;

use super::{
    super::reader::{Problems, Reader},
    message::Message,
};
use crate::config::ValidationError;

/// Reads a secret of this kind by its `SdsSecretConfig`. `None` if it is invalid.
pub(super) fn read<T>(
    config: &Message<'_>,
    kind: &str,
    secret: impl FnOnce(&Message<'_>) -> Option<T>,
) -> Option<T> {
    let name = config.required_text("name");
    let path = path(config);
    config.end();
    let (name, path) = name.zip(path)?;
    let document = match document(Path::new(path)) {
        Ok(document) => document,
        Err(reason) => {
            config.fail("sds_config", format!("{path}: {reason}"));
            return None;
        }
    };
    let problems = Problems::default();
    let root = Message::new(&Reader::new(&document, &problems));
    let found = root.and_then(|root| find(&root, name, kind)).and_then(|message| secret(&message));
    let within = |problem: &ValidationError| format!("{path}: {problem}");
    let (problems, warnings) = problems.into_parts();
    problems.iter().for_each(|problem| config.fail("sds_config", within(problem)));
    // The path of the file stands in the text, since the field of the bootstrap is the only position that it has.
    warnings.iter().for_each(|warning| config.warn("sds_config", &within(warning)));
    found.filter(|_| problems.is_empty())
}

/// The path of the file in `sds_config`.
fn path<'a>(config: &Message<'a>) -> Option<&'a str> {
    let source = config.required("sds_config").and_then(|source| config.of(&source))?;
    // How long to wait for a server, and the only version there is.
    source.heed(&["initial_fetch_timeout", "resource_api_version"]);
    let path = match source.message("path_config_source") {
        Some(file) => {
            file.heed(&["watched_directory"]);
            let path = file.required_text("path");
            file.end();
            path
        }
        None if source.has("path") => source.text("path"),
        None => {
            source.fail_whole("not supported: secrets come from a file, by path_config_source");
            None
        }
    };
    source.end();
    path
}

/// The part of this kind of the secret with this name.
fn find<'a>(root: &Message<'a>, name: &str, kind: &str) -> Option<Message<'a>> {
    root.heed(&["version_info", "type_url"]);
    let all = root.messages("resources");
    root.end();
    let is_named = |secret: &&Message<'a>| secret.text("name") == Some(name);
    let Some(secret) = all.iter().find(is_named) else {
        root.fail("resources", format!("there is no secret {name:?}"));
        return None;
    };
    secret.heed(&["@type"]);
    let found = secret.required(kind).and_then(|part| secret.of(&part));
    secret.end();
    found
}

/// The file as JSON or YAML, by its extension.
fn document(path: &Path) -> Result<Value, String> {
    let text = text(path).map_err(|error| error.to_string())?;
    let text = text.trim_start_matches('\u{feff}');
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("yaml" | "yml") => yaml(text),
        Some("pb" | "pb_text") => Err("must be JSON or YAML".to_owned()),
        // The error has a position, and no content.
        Some(_) | None => serde_json::from_str(text)
            .map_err(|error| format!("not JSON at line {} column {}", error.line(), error.column().max(1))),
    }
}

/// Reads a small text file.
fn text(path: &Path) -> io::Result<String> {
    // A FIFO would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    // One byte more than permitted, by which a larger file is recognized.
    File::open(path)?.take(MAX_SIZE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::Error::other(format!("larger than {MAX_SIZE} bytes")));
    }
    Ok(text)
}

/// Parses YAML. Errors have the position alone, since the text is secret.
#[cfg(feature = "json")]
fn yaml(text: &str) -> Result<Value, String> {
    crate::format::read_yaml(text).map_err(|error| match error.position() {
        Some((line, column)) => format!("not YAML at line {line} column {column}"),
        None => "not YAML".to_owned(),
    })
}

/// Rejects YAML in a build without the parser.
#[cfg(not(feature = "json"))]
fn yaml(_: &str) -> Result<Value, String> {
    Err("it is YAML, and this build of xdskit lacks the feature `json`".to_owned())
}

/// The maximum size of a file in bytes. Those of control planes have less than 1 KiB.
const MAX_SIZE: u64 = 1 << 20;

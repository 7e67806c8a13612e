//! Paths of requests.

/// The path without the query and without a fragment.
// The bytes are compared as they are: nothing is decoded or normalized (SV9.11).
pub(super) fn url_path(path: &str) -> &str {
    path.find(['?', '#']).map_or(path, |end| &path[..end])
}

/// Whether frameworks may read a path in different ways (SV9.11); see `RequestFacts::with_strict_path`.
pub(super) fn is_ambiguous(path: &str) -> bool {
    let path = url_path(path);
    let has_escaped = |digits: [u8; 2]| {
        path.as_bytes()
            .windows(3)
            .any(|escape| escape[0] == b'%' && escape[1..].eq_ignore_ascii_case(&digits))
    };
    let segments = path.strip_prefix('/').unwrap_or(path);
    path.contains("//")
        || path.contains('\\')
        || has_escaped(*b"2F")
        || has_escaped(*b"5C")
        || segments.split('/').any(is_dots)
}

/// Whether a segment of a path is `.` or `..`, with escaped dots as well.
fn is_dots(segment: &str) -> bool {
    let mut rest = segment.as_bytes();
    let mut dots = 0;
    while dots < 3 {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            [] => break,
            _ => return false,
        };
        dots += 1;
    }
    dots == 1 || dots == 2
}

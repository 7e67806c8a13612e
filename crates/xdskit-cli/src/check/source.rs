//! The positions of fields in a document.

use xdskit::tool_support::Outline;

/// One step from a value to one in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The field of a name, or the value of a key in a map.
    Field(String),
    /// The element of a list.
    Index(usize),
}

/// The position of the value at a path, or of the last one on the way to it: a field that is missing is wrong where it is missing.
/// `None` if the document has no positions.
pub(crate) fn locate(root: &Outline, place: &[Step], path: &str) -> Option<(usize, usize)> {
    let steps: Vec<_> = place.iter().cloned().chain(steps(path)).collect();
    let mut at = root;
    let mut rest = &steps[..];
    while let [step, behind @ ..] = rest {
        rest = behind;
        let next = match step {
            Step::Index(index) => at.elements.get(*index),
            Step::Field(name) => match (field(at, name, 0), behind) {
                // In protobuf's text format, the elements of a list may be fields of the same name.
                (Some(first), [Step::Index(index), behind @ ..]) if first.elements.is_empty() => {
                    rest = behind;
                    field(at, name, *index)
                }
                (Some(first), _) => Some(first),
                (None, _) => match &*at.fields {
                    // The text format has the message of an `Any` behind its type URL.
                    [(url, message)] if url.contains('/') => field(message, name, 0),
                    _ => None,
                },
            },
        };
        let Some(next) = next else { break };
        at = next;
    }
    (at.line > 0).then_some((at.line, at.column))
}

/// One of the fields with a name, which JSON may have in camel case.
fn field<'o>(outline: &'o Outline, name: &str, index: usize) -> Option<&'o Outline> {
    let named = |written: &str| written == name || camel(name) == written;
    outline.fields.iter().filter(|(written, _)| named(written)).map(|(_, value)| value).nth(index)
}

/// The name of a field in camel case.
fn camel(name: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                camel.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => camel.push(c),
        }
    }
    camel
}

/// The steps of a path such as `filters[0].config["a.b"].name`.
pub(crate) fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let end = quoted.find("\"]").unwrap_or(quoted.len());
            steps.push(Step::Field(quoted[..end].replace("\\\"", "\"")));
            rest = quoted.get(end + 2..).unwrap_or_default();
        } else if let Some(index) = rest.strip_prefix('[') {
            let end = index.find(']').unwrap_or(index.len());
            match index[..end].parse() {
                Ok(index) => steps.push(Step::Index(index)),
                Err(_) => break,
            }
            rest = index.get(end + 1..).unwrap_or_default();
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Field(rest[..end].to_owned()));
            rest = &rest[end..];
            if end == 0 && !rest.starts_with('[') {
                break;
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use xdskit::tool_support::{outline_json, outline_text};

    use super::*;

    #[test]
    fn a_path_has_its_steps() {
        let field = |name: &str| Step::Field(name.to_owned());
        let expected = [field("a"), Step::Index(12), field("b"), field("c.d]"), field("e")];
        assert_eq!(steps("a[12].b[\"c.d]\"].e"), expected);
        assert_eq!(steps(""), []);
        for broken in ["[", "[x]", "..", "a[", "[\"", ".", "a..b", "\u{e9}[\"\u{e9}"] {
            let _ = steps(broken);
        }
    }

    #[test]
    fn a_missing_field_is_at_what_it_is_missing_in() {
        let json = outline_json("{\"resources\": [\n{\"virtualHosts\": [\n  {\"name\": \"x\"}]}]}");
        let place = steps("resources[0]");
        assert_eq!(locate(&json, &place, "virtual_hosts[0].name"), Some((3, 4)));
        assert_eq!(locate(&json, &place, "virtual_hosts[0].domains"), Some((3, 3)));
        assert_eq!(locate(&json, &place, "virtual_hosts[7]"), Some((2, 2)));
        assert_eq!(locate(&Outline::default(), &place, "virtual_hosts[0]"), None);
    }

    #[test]
    fn repeated_fields_of_the_text_format_are_the_elements_of_a_list() {
        let text = outline_text("resources { a: 1 }\nresources {\n [x.y/Z] { list: [ {\n b: 1 } ] } }");
        assert_eq!(locate(&text, &steps("resources[1]"), "list[0].b"), Some((4, 2)));
    }
}

//! Locators: the names in resources, as a message or as text.
//!
//! A locator in a message is written as text first, and then parsed as any other name: so one parser has the rules of names,
//! and its errors show the name as an operator would write it.

use prost::Message;

use super::{
    ResourceName, SCHEME,
    encoding::{self, encode_into},
    rules::unsupported_scheme,
};
use crate::{
    base::Invalid,
    pb::xds::core::v3::{
        ResourceLocator,
        resource_locator::{ContextParamSpecifier, Directive, Scheme, directive},
    },
};

impl ResourceName {
    /// Reads a `ResourceLocator`, as a message or, as in proposal TP1, as text.
    ///
    /// The rules are those for names in applications: a locator is a URL and not a response to a request, so the
    /// context parameters `xds.*`, which the client itself adds to requests, are an error in it (X8).
    pub(crate) fn of_locator(bytes: &[u8]) -> Result<Self, Invalid> {
        if is_text(bytes) {
            return Self::of_locator_text(bytes);
        }
        let locator = ResourceLocator::decode(bytes)?;
        let text = text_of(&locator, 0)?;
        Self::parse(&text).map_err(|error| Invalid::new(error.to_string()))
    }

    /// Reads a locator that is text: an `xdstp:` URL, or an old-style name, which the message cannot express.
    pub(crate) fn of_locator_text(bytes: &[u8]) -> Result<Self, Invalid> {
        let text = str::from_utf8(bytes).map_err(|_| Invalid::new("neither a locator nor text"))?;
        if let Some(scheme) = unsupported_scheme(text) {
            return Err(Invalid::new(format!("{scheme} is not supported")));
        }
        Self::parse(text).map_err(|error| Invalid::new(error.to_string()))
    }
}

/// Whether the bytes of a locator are text. A message without control characters is one of a type alone: its other fields have
/// tags that are such.
fn is_text(bytes: &[u8]) -> bool {
    if bytes.starts_with(SCHEME.as_bytes()) {
        return true;
    }
    let is_printable =
        str::from_utf8(bytes).is_ok_and(|text| !text.is_empty() && !text.contains(char::is_control));
    let is_message =
        |bytes| ResourceLocator::decode(bytes).is_ok_and(|locator| !locator.resource_type.is_empty());
    is_printable && !is_message(bytes)
}

/// The text form of the message.
///
/// `depth` counts the alternatives around this locator.
fn text_of(locator: &ResourceLocator, depth: usize) -> Result<String, Invalid> {
    match Scheme::try_from(locator.scheme) {
        Ok(Scheme::Xdstp) => {}
        Ok(scheme @ (Scheme::Http | Scheme::File)) => {
            return Err(Invalid::field("scheme", format!("{} is not supported", scheme.as_str_name())));
        }
        Err(_) => return Err(Invalid::field("scheme", format!("{} is unknown", locator.scheme))),
    }
    if depth > MAX_DEPTH {
        return Err(Invalid::field("directives", "too many alternatives inside each other"));
    }
    // The type is not escaped in the text, so that these would move the parts behind it.
    if locator.resource_type.contains(['/', '?', '#']) {
        return Err(Invalid::field("resource_type", format!("{:?} is no type", locator.resource_type)));
    }
    let mut text = String::from(SCHEME);
    encode_into(&mut text, &locator.authority, encoding::AUTHORITY);
    text.push('/');
    text.push_str(&locator.resource_type);
    text.push('/');
    encode_into(&mut text, &locator.id, encoding::PATH);
    if let Some(ContextParamSpecifier::ExactContext(context)) = &locator.context_param_specifier {
        let mut separator = '?';
        // The order of the map does not matter: the parser sorts parameters.
        for (key, value) in &context.params {
            text.push(separator);
            encode_into(&mut text, key, encoding::PARAM);
            text.push('=');
            encode_into(&mut text, value, encoding::PARAM);
            separator = '&';
        }
    }
    let mut separator = '#';
    for (index, directive) in locator.directives.iter().enumerate() {
        let written = text_of_directive(directive, depth).map_err(|e| e.at_index("directives", index))?;
        text.push(separator);
        text.push_str(&written);
        separator = ',';
    }
    Ok(text)
}

/// The text of a directive in a message.
///
/// The value is escaped once more for each level, as the text form requires; the parser takes one level off at a time.
fn text_of_directive(directive: &Directive, depth: usize) -> Result<String, Invalid> {
    let (mut text, value) = match &directive.directive {
        Some(directive::Directive::Alt(alt)) => {
            (String::from("alt="), text_of(alt, depth + 1).map_err(|e| e.at("alt"))?)
        }
        Some(directive::Directive::Entry(entry)) => (String::from("entry="), entry.clone()),
        None => return Err(Invalid::new("neither alt nor entry")),
    };
    encode_into(&mut text, &value, encoding::DIRECTIVE);
    Ok(text)
}

/// The maximum nesting, as of alternatives in the text form.
const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::xds::core::v3::ContextParams;

    fn locator() -> ResourceLocator {
        let params = [("b".to_owned(), "2&".to_owned()), ("a".to_owned(), "1".to_owned())];
        ResourceLocator {
            id: "foo/b?r".into(),
            authority: "a/b".into(),
            resource_type: "T".into(),
            context_param_specifier: Some(ContextParamSpecifier::ExactContext(ContextParams {
                params: params.into_iter().collect(),
            })),
            directives: vec![Directive { directive: Some(directive::Directive::Entry("e".into())) }],
            ..ResourceLocator::default()
        }
    }

    fn read(locator: &ResourceLocator) -> Result<String, String> {
        ResourceName::of_locator(&locator.encode_to_vec())
            .map(|name| name.to_string())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn x20_a_locator_is_a_message_or_text() {
        let text = "xdstp://a%2Fb/T/foo/b%3Fr?a=1&b=2%26#entry=e";
        assert_eq!(read(&locator()).as_deref(), Ok(text));
        assert_eq!(ResourceName::of_locator(text.as_bytes()).unwrap().to_string(), text);
        let alt = Some(directive::Directive::Alt(locator()));
        let nested = ResourceLocator { directives: vec![Directive { directive: alt }], ..locator() };
        let nested = ResourceName::of_locator(&nested.encode_to_vec()).unwrap();
        assert_eq!(nested.directives().unwrap().alt().unwrap().to_string(), text);
    }

    #[test]
    fn x20_a_locator_that_is_text_may_be_an_old_style_name() {
        for text in ["shop", "outbound|80||shop.default", "xds://shop", "\"quoted", "2*2", "*shop", "ä/b#c?d"]
        {
            let name = ResourceName::of_locator(text.as_bytes()).unwrap();
            assert_eq!((name.to_string().as_str(), name.is_xdstp()), (text, false));
            assert_eq!(ResourceName::of_locator_text(text.as_bytes()), Ok(name));
        }
        // The tag and the length of a type of 43 characters are printable.
        let ty = "envoy.config.route.v3.ScopedRoutesConfigure";
        let typed = ResourceLocator { resource_type: ty.into(), ..ResourceLocator::default() };
        assert!(typed.encode_to_vec().iter().all(|byte| !byte.is_ascii_control()));
        assert_eq!(read(&typed).as_deref(), Ok(&*format!("xdstp:///{ty}")));
        // Text that means an `xdstp:` name is never an old-style one.
        assert!(ResourceName::of_locator(b"xdstp:shop").is_err());
        assert!(ResourceName::of_locator(b"a\nb").is_err());
    }

    #[test]
    fn x24_locators_of_other_schemes_are_rejected_with_the_reason() {
        let of = |scheme| read(&ResourceLocator { scheme, ..locator() }).unwrap_err();
        assert_eq!(of(1), "scheme: HTTP is not supported");
        assert_eq!(of(2), "scheme: FILE is not supported");
        assert_eq!(of(3), "scheme: 3 is unknown");
        let typeless = ResourceLocator { resource_type: String::new(), ..locator() };
        assert!(read(&typeless).unwrap_err().contains("resource type at byte"), "{:?}", read(&typeless));
        assert!(ResourceName::of_locator(b"\xff").is_err());
        for (text, error) in [
            ("http://a/T/x", "http:// is not supported"),
            ("file:///T/x#entry=e", "file:// is not supported"),
        ] {
            assert_eq!(ResourceName::of_locator(text.as_bytes()).unwrap_err().to_string(), error);
        }
        let empty = ResourceLocator { directives: vec![Directive::default()], ..locator() };
        assert_eq!(read(&empty).unwrap_err(), "directives[0]: neither alt nor entry");
    }

    #[test]
    fn x8_context_parameters_of_the_client_are_an_error_in_locators() {
        let key = "key \"xds.node.id\" is reserved: `xds.*` is set by the client";
        let params = [("xds.node.id".to_owned(), "n".to_owned())].into_iter().collect();
        let context = Some(ContextParamSpecifier::ExactContext(ContextParams { params }));
        let message = ResourceLocator { context_param_specifier: context, directives: vec![], ..locator() };
        let error = read(&message).unwrap_err();
        assert!(error.contains(key), "{error}");
        let alt = Some(directive::Directive::Alt(message));
        let nested = ResourceLocator { directives: vec![Directive { directive: alt }], ..locator() };
        let error = read(&nested).unwrap_err();
        assert!(error.contains(key), "{error}");
        for text in ["xdstp://a/T/x?xds.node.id=n", "xdstp://a/T/x#alt=xdstp://b/T/x?xds.node.id=n"] {
            let error = ResourceName::of_locator(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn x21_alternatives_in_messages_do_not_nest_without_end() {
        let nested = |depth| {
            (0..depth).fold(locator(), |inner, _| {
                let alt = Directive { directive: Some(directive::Directive::Alt(inner)) };
                ResourceLocator { directives: vec![alt], authority: "a".into(), ..locator() }
            })
        };
        assert!(read(&nested(3)).is_ok());
        assert!(read(&nested(40)).is_err());
    }
}

//! The message form of `xdstp:` names.

use crate::{
    name::{ResourceName, XdstpName},
    pb::xds::core::v3::{
        ContextParams, ResourceLocator,
        resource_locator::{ContextParamSpecifier, Directive, directive},
    },
};

/// An `xdstp:` name as a `ResourceLocator`; `None` for an opaque name, and for one with an opaque alternative, which the
/// message cannot express.
pub(crate) fn locator(name: &ResourceName) -> Option<ResourceLocator> {
    name.xdstp().and_then(locator_of)
}

/// The message of a parsed name.
fn locator_of(name: &XdstpName) -> Option<ResourceLocator> {
    let params =
        name.context_params().iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let directives = name.directives();
    let alt = match directives.alt() {
        Some(alt) => Some(directive::Directive::Alt(locator(alt)?)),
        None => None,
    };
    let entry = directives.entry().map(|entry| directive::Directive::Entry(entry.to_owned()));
    Some(ResourceLocator {
        id: name.id().to_owned(),
        authority: name.authority().to_owned(),
        resource_type: name.resource_type().to_owned(),
        context_param_specifier: Some(ContextParamSpecifier::ExactContext(ContextParams { params })),
        directives: alt
            .into_iter()
            .chain(entry)
            .map(|directive| Directive { directive: Some(directive) })
            .collect(),
        ..ResourceLocator::default()
    })
}

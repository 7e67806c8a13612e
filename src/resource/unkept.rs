//! Resources whose contents are handed on and not kept.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{
    Context, Erased, Invalid, Resource, Validation,
    resource_type::{Handover, ResourceType},
};

/// A resource in the cache whose content is taken by its consumer, which has a store of its own. What is left of it then is its identity.
pub(crate) struct Unkept<T> {
    content: Mutex<Option<Arc<T>>>,
}

impl<T> Unkept<T> {
    fn new(content: Option<Arc<T>>) -> Self {
        Self { content: Mutex::new(content) }
    }

    fn take(&self) -> Option<Arc<T>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Resource> Resource for Unkept<T> {
    const TYPE_URL: &'static str = T::TYPE_URL;
    const FULL_STATE: bool = T::FULL_STATE;
    const SENSITIVE: bool = T::SENSITIVE;
    const COLLECTION_TYPE_URL: Option<&'static str> = T::COLLECTION_TYPE_URL;
    const VALIDATION: Validation = T::VALIDATION;

    fn name(bytes: &[u8]) -> Result<Cow<'_, str>, Invalid> {
        T::name(bytes)
    }

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        T::parse(bytes, cx).map(|content| Self::new(Some(Arc::new(content))))
    }
}

impl ResourceType {
    /// The type of `T`, of whose resources the cache keeps names, versions and digests.
    pub(crate) const fn of_unkept<T: Resource>() -> Self {
        let handover = const {
            &Handover {
                take: |resource| {
                    let content = resource.downcast_ref::<Unkept<T>>()?.take()?;
                    Some(content as Erased)
                },
                taken: || Arc::new(Unkept::<T>::new(None)),
            }
        };
        Self::of::<Unkept<T>>().with_handover(handover)
    }
}

impl<T> fmt::Debug for Unkept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unkept").finish_non_exhaustive()
    }
}

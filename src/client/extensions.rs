//! Values that other modules keep with a client.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// At most one value of each type, which lives as long as the client.
///
/// Modules above the client share state among its users by an extension, so that the client need not name those modules.
#[derive(Default)]
pub(super) struct Extensions {
    values: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Extensions {
    /// Adds a value. Another one of the type is replaced.
    pub(super) fn insert<T: Any + Send + Sync>(&self, value: T) {
        self.lock().insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Returns the value of a type.
    pub(super) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.lock().get(&TypeId::of::<T>()).cloned().and_then(|value| value.downcast().ok())
    }

    /// Returns the value of a type, which is made if there is none. `make` must not use the extensions.
    #[cfg(feature = "channel")]
    pub(super) fn get_or_insert_with<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut values = self.lock();
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(make()));
        value.clone().downcast().expect("the value of a type is of that type")
    }

    /// Locks the values, which are whole even after a panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<TypeId, Arc<dyn Any + Send + Sync>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The consumers of batches, whose watches share nothing.

use std::{
    any::{Any, TypeId, type_name},
    sync::{Arc, Weak},
};

use super::{About, Registry, ResourceValue, SharedWatch, Type, WatchedNames};
use crate::{
    client::{
        batch_options::{BatchOptions, Keep},
        command::Command,
    },
    engine::SelectedBatches,
    observed::{Erase, erase},
    resource::{Resource, ResourceType, Unkept, services::Service},
};

/// The type of what a consumer is given, as the cache has it.
struct ConsumedType {
    ty: ResourceType,
    erase: Erase,
    rust: TypeId,
    rust_name: &'static str,
}

/// A new consumer of batches. Unlike watches, those of equal names share nothing.
pub(in crate::client) fn begin<V: ResourceValue>(
    registry: &Arc<Registry>,
    names: WatchedNames<'_>,
    options: BatchOptions,
) -> Arc<SharedWatch<V>> {
    let ConsumedType { ty, erase, rust, rust_name } = match options.keep {
        Keep::Resources => {
            let of = ConsumedType::of::<V::Resource>;
            of(ResourceType::of::<V::Resource>(), erase::<V::Resource>)
        }
        Keep::Nothing => {
            let of = ConsumedType::of::<Unkept<V::Resource>>;
            of(ResourceType::of_unkept::<V::Resource>(), erase::<Unkept<V::Resource>>)
        }
    };
    let mut state = registry.lock();
    let id = state.next_id();
    if options.keep == Keep::Nothing && Service::of(ty.type_url()).is_some() {
        drop(state);
        return registry.refused(id, ty.type_url(), names, OWN_TYPE.to_owned());
    }
    let watches = state.types.entry(ty.type_url()).or_insert_with(|| Type::of(rust, rust_name));
    let refusal = match options.keep {
        Keep::Resources => registry.refusal::<V::Resource>(watches),
        Keep::Nothing => refusal_of_unkept::<V::Resource>(registry, watches),
    };
    if let Some(reason) = refusal {
        drop(state);
        return registry.refused(id, ty.type_url(), names, reason);
    }
    let names = names.into_owned();
    let watch = registry.new_watch(id, About::Resources(ty.type_url(), names.clone()));
    if options.keep == Keep::Nothing {
        let consumer: Weak<dyn Any + Send + Sync> = Arc::<SharedWatch<V>>::downgrade(&watch);
        watches.consumer = Some(consumer);
    }
    let publish = Arc::downgrade(&watch);
    let selected = SelectedBatches { ty, names, erase, versions: options.versions };
    registry.begin(&watch, Command::Batches { watch_id: id, selected: Box::new(selected), publish });
    watch
}

/// Why a consumer of resources that are not kept is refused, if it is.
fn refusal_of_unkept<T: Resource>(registry: &Registry, watches: &Type) -> Option<String> {
    let has_consumer = watches.consumer.as_ref().is_some_and(|consumer| consumer.strong_count() > 0);
    let reason = "its resources are not kept, and have a consumer already";
    registry.refusal::<Unkept<T>>(watches).or_else(|| has_consumer.then(|| reason.to_owned()))
}

impl ConsumedType {
    fn of<T: Resource>(ty: ResourceType, erase: Erase) -> Self {
        Self { ty, erase, rust: TypeId::of::<T>(), rust_name: type_name::<T>() }
    }
}

/// Why a consumer of one of the protocol's types is refused.
const OWN_TYPE: &str = "resources of the protocol's own types are kept, since resolutions use them";

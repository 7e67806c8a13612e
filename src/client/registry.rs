//! The watches of a client, of which those of one subject share their value.

pub(super) mod any_types;
pub(super) mod consumers;

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::mpsc::{UnboundedSender, error::SendError};

use super::{
    command::{Command, Publish},
    extensions::Extensions,
    identity::Identity,
    slot::{Slot, Wakers},
};
use crate::{
    base::WatchId,
    capacity::Shrink,
    config::{Bootstrap, Target},
    engine::{SelectedName, Selection},
    error::{Blame, Code, Subject, WatchError},
    lrs::Loads,
    resolve::Resolved,
    resource::{Erased, Listener, Resource, ResourceType, Validation},
};

/// The watches of a client with at least one watcher.
///
/// All watchers of the same subject share one watch. A watch begins with its first watcher and ends with its last; a
/// later watch of the subject creates another watch with an id of its own.
pub(super) struct Registry {
    commands: UnboundedSender<Command>,
    identity: Identity,
    bootstrap: Arc<Bootstrap>,
    role: Role,
    state: Mutex<State>,
    loads: Arc<Loads>,
    extensions: Extensions,
}

/// The value that a watch publishes.
pub(super) trait WatchValue: Send + Sync + Sized + 'static {
    /// State that the watchers of a watch share beside the value.
    type Shared: Default + Send + Sync;

    /// Restores the type of a value that the engine publishes.
    fn from_erased(erased: Erased) -> Arc<Self>;
}

/// The value of a watch of resources: one resource, or all members.
pub(super) trait ResourceValue: WatchValue {
    type Resource: Resource;

    /// The value of a watch that was refused.
    fn refused(reason: WatchError) -> Self;
}

/// The latest value of a watched subject, shared by its watchers.
pub(super) struct SharedWatch<V: WatchValue> {
    slot: Slot<V>,
    id: WatchId,
    about: About,
    shared: V::Shared,
    registry: Arc<Registry>,
}

/// The subject of a watch.
#[derive(Debug, Clone)]
pub(super) enum About {
    /// Resources of the type with this URL.
    Resources(&'static str, Selection),
    /// The resolution of a target.
    Target(Target),
}

/// The part of a client that watches belong to.
#[derive(Debug)]
pub(super) enum Role {
    /// All watches but the observing ones, which have a part of their own.
    Client,
    /// Observing watches. This part keeps the client that it belongs to alive, unless it is the whole client.
    Observer {
        #[expect(dead_code, reason = "it is kept, and never read")]
        client: Option<Arc<Registry>>,
    },
}

#[derive(Default)]
struct State {
    /// The id of the newest watch.
    last_id: u64,
    /// The watches of resources, by type URL.
    types: HashMap<&'static str, Type>,
    /// The watches of resolutions.
    targets: HashMap<Target, Entry>,
}

/// The watches of one resource type.
struct Type {
    /// The Rust type that was first watched under the type URL.
    rust: TypeId,
    /// Its name, for errors.
    rust_name: &'static str,
    /// The watch of all resources.
    all: Option<Entry>,
    /// The watches of single resources.
    one: HashMap<Arc<str>, Entry>,
    /// The watches of collections.
    others: HashMap<Selection, Entry>,
    /// The consumer of batches, of a type whose resources are not kept.
    consumer: Option<Weak<dyn Any + Send + Sync>>,
}

#[derive(Clone)]
struct Entry {
    /// The id of the watch.
    id: WatchId,
    /// A `SharedWatch` of the type's resource, or of a resolution.
    watch: Weak<dyn Any + Send + Sync>,
}

impl Registry {
    pub(super) fn new(
        commands: UnboundedSender<Command>,
        identity: Identity,
        bootstrap: Arc<Bootstrap>,
        role: Role,
        loads: Arc<Loads>,
    ) -> Arc<Self> {
        Arc::new(Self {
            commands,
            identity,
            role,
            state: Mutex::default(),
            loads,
            extensions: Extensions::default(),
            bootstrap,
        })
    }

    pub(super) fn bootstrap(&self) -> &Bootstrap {
        &self.bootstrap
    }

    /// The loads that the client reports.
    pub(super) fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }

    /// The values that other modules keep with the client.
    pub(super) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sends a command to the driver. An error means that the driver has ended.
    pub(super) fn order(&self, command: Command) -> Result<(), SendError<Command>> {
        self.commands.send(command)
    }

    /// The watch of these names: an existing one, or a new one.
    pub(super) fn resources<V: ResourceValue>(
        self: &Arc<Self>,
        names: WatchedNames<'_>,
    ) -> Arc<SharedWatch<V>> {
        self.resources_of_type(ResourceType::of::<V::Resource>(), names)
    }

    /// The watch of these names of a type, whose values are those of `V`.
    pub(super) fn resources_of_type<V: ResourceValue>(
        self: &Arc<Self>,
        ty: ResourceType,
        names: WatchedNames<'_>,
    ) -> Arc<SharedWatch<V>> {
        let mut state = self.lock();
        let id = state.next_id();
        let watches = state.types.entry(ty.type_url()).or_insert_with(Type::new::<V::Resource>);
        if let Some(reason) = self.refusal::<V::Resource>(watches) {
            drop(state);
            return self.refused(id, ty.type_url(), names, reason);
        }
        if let Some(watch) = watches.find(&names).and_then(|entry| entry.watch.upgrade()) {
            return watch.downcast().expect("the watches of a type URL are of one type");
        }
        let names = names.into_owned();
        let watch = self.new_watch(id, About::Resources(ty.type_url(), names.clone()));
        let publish = Arc::downgrade(&watch);
        watches.insert(&names, Entry { id, watch: publish.clone() });
        self.begin(&watch, Command::Watch { watch_id: id, ty, names, publish });
        watch
    }

    /// Why a watch of a type is refused, if it is.
    fn refusal<T: Resource>(&self, watches: &Type) -> Option<String> {
        if self.role.validation() != T::VALIDATION && !self.has_ended() {
            let reason = "the client observes: watch Inspected resources, or build it with Validation::Grpc";
            return Some(reason.to_owned());
        }
        let is_other = watches.rust != TypeId::of::<T>();
        is_other.then(|| format!("its type URL is watched as {} by this client already", watches.rust_name))
    }

    /// The watch of a target's resolution: an existing one, or a new one.
    pub(super) fn resolution(self: &Arc<Self>, target: Target) -> Arc<SharedWatch<Resolved>> {
        let mut state = self.lock();
        if let Some(watch) = state.targets.get(&target).and_then(|entry| entry.watch.upgrade()) {
            return watch.downcast().expect("the watches of targets are of one type");
        }
        let id = state.next_id();
        let watch = self.new_watch(id, About::Target(target.clone()));
        if self.role.validation() == Validation::Observe && !self.has_ended() {
            drop(state);
            let reason = "the client observes: resolve targets with a client of Validation::Grpc";
            let reason = WatchError::new(Code::FailedPrecondition, Blame::Local, watch.subject(), reason);
            watch.slot.publish(Arc::new(Err(reason))).wake();
            watch.slot.close().wake();
            return watch;
        }
        let publish = Arc::downgrade(&watch);
        state.targets.insert(target.clone(), Entry { id, watch: publish.clone() });
        self.begin(&watch, Command::Resolve { watch_id: id, target, publish });
        watch
    }

    fn new_watch<V: WatchValue>(self: &Arc<Self>, id: WatchId, about: About) -> Arc<SharedWatch<V>> {
        Arc::new(SharedWatch {
            slot: Slot::new(),
            id,
            about,
            shared: V::Shared::default(),
            registry: self.clone(),
        })
    }

    /// Sends the first command of a watch. Called with the lock held, so that commands of later watchers follow it.
    fn begin<V: WatchValue>(&self, watch: &SharedWatch<V>, command: Command) {
        if self.commands.send(command).is_err() {
            watch.slot.close().wake();
        }
    }

    /// Whether the driver has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// Ends the driver, and waits until it has ended.
    pub(super) async fn shutdown(&self) {
        if self.commands.send(Command::Shutdown).is_ok() {
            self.ended().await;
        }
    }

    /// Waits until the driver has ended.
    pub(super) async fn ended(&self) {
        self.commands.closed().await;
    }

    /// A watch that is closed from the beginning, with a reason.
    fn refused<V: ResourceValue>(
        self: &Arc<Self>,
        id: WatchId,
        type_url: &'static str,
        names: WatchedNames<'_>,
        reason: String,
    ) -> Arc<SharedWatch<V>> {
        let watch = self.new_watch(id, About::Resources(type_url, names.into_owned()));
        let reason = WatchError::new(Code::FailedPrecondition, Blame::Local, watch.subject(), reason);
        watch.slot.publish(Arc::new(V::refused(reason))).wake();
        watch.slot.close().wake();
        watch
    }

    /// Ends a watch whose last watcher is gone, unless a new watch has replaced it, and informs the driver.
    pub(super) fn forget(&self, about: &About, id: WatchId) {
        self.lock().remove(about, id);
        // An error means that the driver ended, and all subscriptions with it.
        let _ = self.commands.send(Command::Unwatch { watch_id: id });
    }

    /// The resolved targets, in the order of their names.
    pub(super) fn target_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lock().targets.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    /// The number of resolved targets.
    #[cfg(test)]
    pub(super) fn targets(&self) -> usize {
        self.lock().targets.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Role {
    /// The validation profile of all watches of this part.
    fn validation(&self) -> Validation {
        match self {
            Self::Client => Validation::Grpc,
            Self::Observer { .. } => Validation::Observe,
        }
    }
}

/// A borrowed [`Selection`]: joining an existing watch does not allocate.
#[derive(Debug)]
pub(super) enum WatchedNames<'a> {
    All,
    One(&'a str),
    /// A rarer selection, which may be owned.
    Other(Selection),
}

impl WatchedNames<'_> {
    pub(super) fn into_owned(self) -> Selection {
        match self {
            Self::All => Selection::All,
            Self::One(name) => Selection::One(name.into()),
            Self::Other(names) => names,
        }
    }
}

impl State {
    fn next_id(&mut self) -> WatchId {
        self.last_id += 1;
        WatchId::new(self.last_id)
    }

    fn remove(&mut self, about: &About, id: WatchId) {
        match about {
            About::Resources(type_url, names) => {
                if let Some(watches) = self.types.get_mut(type_url) {
                    watches.remove(names, id);
                }
            }
            About::Target(target) => {
                if self.targets.get(target).is_some_and(|entry| entry.id == id) {
                    self.targets.remove(target);
                    self.targets.shrink_if_sparse();
                }
            }
        }
    }
}

impl Type {
    fn new<T: Resource>() -> Self {
        Self::of(TypeId::of::<T>(), type_name::<T>())
    }

    fn of(rust: TypeId, rust_name: &'static str) -> Self {
        Self { rust, rust_name, all: None, one: HashMap::new(), others: HashMap::new(), consumer: None }
    }

    fn find(&self, names: &WatchedNames<'_>) -> Option<&Entry> {
        match names {
            WatchedNames::All => self.all.as_ref(),
            WatchedNames::One(name) => self.one.get(*name),
            WatchedNames::Other(names) => self.others.get(names),
        }
    }

    fn insert(&mut self, names: &Selection, entry: Entry) {
        match names {
            Selection::All => self.all = Some(entry),
            Selection::One(SelectedName::Text(name)) => drop(self.one.insert(name.clone(), entry)),
            Selection::One(SelectedName::Name(_))
            | Selection::Collection(_)
            | Selection::Pushed
            | Selection::Nothing => {
                self.others.insert(names.clone(), entry);
            }
        }
    }

    fn remove(&mut self, names: &Selection, id: WatchId) {
        match names {
            Selection::All => drop(self.all.take_if(|entry| entry.id == id)),
            Selection::One(SelectedName::Text(name)) => remove_if(&mut self.one, name, id),
            Selection::One(SelectedName::Name(_))
            | Selection::Collection(_)
            | Selection::Pushed
            | Selection::Nothing => remove_if(&mut self.others, names, id),
        }
    }
}

fn remove_if<K: Eq + Hash>(watches: &mut HashMap<K, Entry>, key: &K, id: WatchId) {
    if watches.get(key).is_some_and(|entry| entry.id == id) {
        watches.remove(key);
        watches.shrink_if_sparse();
    }
}

impl<V: WatchValue> SharedWatch<V> {
    pub(super) fn slot(&self) -> &Slot<V> {
        &self.slot
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(super) fn id(&self) -> WatchId {
        self.id
    }

    pub(super) fn shared(&self) -> &V::Shared {
        &self.shared
    }

    /// Sends a command about this watch to the driver.
    pub(super) fn order(&self, command: impl FnOnce(WatchId) -> Command) {
        // An error means that the driver ended, and all subscriptions with it.
        let _ = self.registry.commands.send(command(self.id));
    }

    /// The error of a wait that can no longer succeed.
    pub(super) fn shut_down(&self) -> WatchError {
        WatchError::new(Code::Cancelled, Blame::Local, self.subject(), "the client was shut down")
    }

    pub(super) fn subject(&self) -> Subject {
        let (type_url, name) = match &self.about {
            About::Resources(type_url, names) => (*type_url, names.text()),
            About::Target(target) => (Listener::TYPE_URL, target.as_str().into()),
        };
        Subject { type_url, name, node: self.registry.identity.node_id.clone() }
    }
}

impl<V: WatchValue> Publish for SharedWatch<V> {
    fn publish(&self, observed: Erased) -> Wakers {
        self.slot.publish(V::from_erased(observed))
    }

    fn close(&self) -> Wakers {
        self.slot.close()
    }
}

impl<V: WatchValue> Drop for SharedWatch<V> {
    fn drop(&mut self) {
        self.registry.forget(&self.about, self.id);
    }
}

impl<V: WatchValue> fmt::Debug for SharedWatch<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWatch")
            .field("about", &self.about)
            .field("id", &self.id)
            .field("slot", &self.slot)
            .finish()
    }
}

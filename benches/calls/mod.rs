//! What the benches of calls share: servers in a process of their own, a control plane, and the clients that are compared.

pub(crate) mod backends;
pub(crate) mod clients;
pub(crate) mod codec;
pub(crate) mod cores;
pub(crate) mod direct;
pub(crate) mod echo;
pub(crate) mod features;
pub(crate) mod invoke;
pub(crate) mod load;
pub(crate) mod mesh;
pub(crate) mod tls;

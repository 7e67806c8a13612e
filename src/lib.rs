//! xDS for applications that are not proxies.

pub mod pb;

//! What the tests share with those of the library.

#[path = "../../../../tests/it/common/raw.rs"]
pub(crate) mod raw;
#[path = "../../../../tests/it/common/resources.rs"]
pub(crate) mod resources;
#[path = "../../../../tests/it/common/soon.rs"]
mod soon;
#[path = "../../../../tests/it/common/tls.rs"]
#[allow(dead_code, reason = "the tests of the library use more of it")]
pub(crate) mod tls;

pub(crate) use self::soon::soon;

use std::{any::Any, fmt, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A configuration of a type that the application registered. In JSON, an object with the type name as its key.
#[derive(Clone)]
pub struct Custom(pub(crate) Arc<dyn Configuration>);

impl Custom {
    /// The full name of its message.
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other.0.as_any())
    }
}

impl Serialize for Custom {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let value = self.0.to_json().map_err(serde::ser::Error::custom)?;
        to.collect_map([(self.type_name(), value)])
    }
}

/// A configuration whose type only the application knows.
///
/// The trait erases types of the application, so that a resource with such a configuration can be compared, shown and serialized like
/// any other.
pub(crate) trait Configuration: fmt::Debug + Send + Sync {
    fn type_name(&self) -> &'static str;
    /// The value, for the cast to the application's type.
    fn as_any(&self) -> &dyn Any;
    /// Whether another configuration has the same type and value. A value of another type is different, and no error.
    fn is_equal(&self, other: &dyn Any) -> bool;
    /// The JSON form, for tools; the application's serializer may fail.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
}

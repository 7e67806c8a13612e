//! Lists that behave as the slice of their entries.

/// Implements the traits that give a list the behavior of its slice.
macro_rules! as_slice {
    ($($list:ident of $entry:ty;)*) => {$(
        impl std::ops::Deref for $list {
            type Target = [$entry];

            fn deref(&self) -> &[$entry] {
                &self.all
            }
        }

        impl<'a> IntoIterator for &'a $list {
            type Item = &'a $entry;
            type IntoIter = std::slice::Iter<'a, $entry>;

            fn into_iter(self) -> std::slice::Iter<'a, $entry> {
                self.all.iter()
            }
        }

        impl std::fmt::Debug for $list {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.all.fmt(f)
            }
        }

        impl PartialEq for $list {
            fn eq(&self, other: &Self) -> bool {
                self.all == other.all
            }
        }

        impl serde::Serialize for $list {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.all.serialize(serializer)
            }
        }
    )*};
}

pub(super) use as_slice;

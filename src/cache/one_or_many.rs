//! A list that mostly has one element.

use std::ops::Deref;

/// A list that mostly has one element, for which nothing is allocated then.
///
/// A list of ids takes 16 bytes, of which each entry has several. Values are moved between the variants, so that they are
/// [`Copy`].
#[derive(Debug)]
pub(crate) enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// No value, or several: most lists have one, which needs no allocation.
    Other(Option<Box<Several<T>>>),
}

/// The list of two values or more. The `Vec` is boxed, as it would make every list larger than one value and a tag.
#[derive(Debug)]
pub(crate) struct Several<T> {
    /// At least two values.
    all: Vec<T>,
}

impl<T: Copy> OneOrMany<T> {
    /// Adds a value at the end.
    pub(crate) fn push(&mut self, new: T) {
        match self {
            Self::Other(None) => *self = Self::One(new),
            Self::One(first) => {
                let all = vec![*first, new];
                *self = Self::Other(Some(Box::new(Several { all })));
            }
            Self::Other(Some(several)) => several.all.push(new),
        }
    }

    /// Keeps only those that fulfil a condition.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        match self {
            Self::Other(None) => {}
            Self::One(one) if keep(one) => {}
            Self::One(_) => *self = Self::default(),
            Self::Other(Some(several)) => {
                several.all.retain(keep);
                self.normalize();
            }
        }
    }

    /// Frees the allocation if one value or none is left.
    ///
    /// Without it, a name that was watched twice for a moment would keep its list as long as it lives.
    fn normalize(&mut self) {
        if let Self::Other(Some(several)) = self
            && several.all.len() < 2
        {
            *self = several.all.first().map_or_else(Self::default, |one| Self::One(*one));
        }
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Other(None)
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Other(None) => &[],
            Self::Other(Some(several)) => &several.all,
        }
    }
}

impl<T: Copy> Extend<T> for OneOrMany<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|one| self.push(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let mut few = OneOrMany::default();
        assert_eq!(few.len(), 0);
        few.extend([1]);
        assert!(matches!(few, OneOrMany::One(1)));
        few.extend([2, 3]);
        assert_eq!(*few, [1, 2, 3]);
        few.retain(|one| *one != 2);
        few.retain(|one| *one != 3);
        assert!(matches!(few, OneOrMany::One(1)), "and small again");
        few.retain(|one| *one != 1);
        assert!(few.is_empty());
        few.push(4);
        assert_eq!(*few, [4]);
    }

    #[test]
    fn one_takes_no_more_than_it_has_to() {
        assert_eq!(size_of::<OneOrMany<u64>>(), 16);
    }
}

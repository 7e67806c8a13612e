//! A compact tree of texts, for the longest one that a text begins with.

/// A radix tree of byte strings. It finds the keys that a text begins with in time linear in the text, whatever the
/// number of keys.
#[derive(Debug, Default)]
pub(in crate::resource) struct Trie {
    /// The root first; the children of a node are adjacent, sorted by the first byte of their labels.
    nodes: Box<[TrieNode]>,
    /// The first byte of each node's label, in the order of the nodes.
    firsts: Box<[u8]>,
    /// The labels of all nodes.
    labels: Box<[u8]>,
}

/// A node of the trie. Spans in place of vectors make it small, and a trie three allocations.
#[derive(Debug, Default)]
struct TrieNode {
    /// The bytes that the node adds to its parent's, in `labels`.
    label: Span,
    /// The range of children in `nodes`.
    children: Span,
    /// The number of the key that ends here.
    key: Option<u32>,
}

/// A range in a list of at most 2³² entries.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::resource) struct Span {
    /// The first position.
    start: u32,
    /// The position after the last one.
    end: u32,
}

impl Trie {
    /// Builds the tree of sorted, unique keys; keys are numbered in their order.
    /// Keys in another order would be lost, since nodes are made of adjacent keys with the same first byte.
    ///
    /// Returns `None` if the tree would need numbers beyond 32 bits.
    pub(in crate::resource) fn new(keys: &[impl AsRef<[u8]>]) -> Option<Self> {
        let keys = || keys.iter().map(AsRef::as_ref);
        let keys: Vec<&[u8]> = keys().collect();
        let (mut nodes, mut firsts, mut labels) = (vec![TrieNode::default()], vec![0], Vec::new());
        // The keys below each node, and the length of their common prefix.
        let mut below = vec![(0..keys.len(), 0)];
        let mut node = 0;
        // Breadth first, so that the children of a node are adjacent.
        while let Some((mut range, depth)) = below.get(node).cloned() {
            if range.clone().next().is_some_and(|first| keys[first].len() == depth) {
                nodes[node].key = Some(u32::try_from(range.start).ok()?);
                range.start += 1;
            }
            let first_child = nodes.len();
            for child in keys[range.clone()].chunk_by(|a, b| a[depth] == b[depth]) {
                let (first, last) = (child[0], child[child.len() - 1]);
                // Keys are sorted, so what the first and the last one have in common all between them have, too.
                let common = first[depth..].iter().zip(&last[depth..]).take_while(|(a, b)| a == b).count();
                let label_start = labels.len();
                labels.extend_from_slice(&first[depth..depth + common]);
                let label = Span::new(label_start..labels.len())?;
                nodes.push(TrieNode { label, ..TrieNode::default() });
                firsts.push(first[depth]);
                below.push((range.start..range.start + child.len(), depth + common));
                range.start += child.len();
            }
            nodes[node].children = Span::new(first_child..nodes.len())?;
            node += 1;
        }
        Some(Self { nodes: nodes.into(), firsts: firsts.into(), labels: labels.into() })
    }

    /// Returns the number and the length of the longest key that a text begins with. `length` is that of the text,
    /// and `at` returns its byte at a position.
    pub(in crate::resource) fn longest(
        &self,
        length: usize,
        at: impl Fn(usize) -> u8,
    ) -> Option<(u32, usize)> {
        let mut node = self.nodes.first()?;
        let (mut longest, mut depth) = (None, 0);
        loop {
            longest = node.key.map(|key| (key, depth)).or(longest);
            if depth == length {
                return longest;
            }
            let Ok(child) = node.children.of(&self.firsts).binary_search(&at(depth)) else { return longest };
            node = &node.children.of(&self.nodes)[child];
            let label = node.label.of(&self.labels);
            if label.len() > length - depth || !label.iter().zip(depth..).all(|(byte, i)| *byte == at(i)) {
                return longest;
            }
            depth += label.len();
        }
    }
}

impl Span {
    /// The span of a range; `None` if it is too far.
    pub(in crate::resource) fn new(range: std::ops::Range<usize>) -> Option<Self> {
        Some(Self { start: u32::try_from(range.start).ok()?, end: u32::try_from(range.end).ok()? })
    }

    /// The elements of a list in the span.
    pub(in crate::resource) fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.start as usize..self.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn longest(trie: &Trie, text: &[u8]) -> Option<(u32, usize)> {
        trie.longest(text.len(), |i| text[i])
    }

    #[test]
    fn nothing_begins_with_no_key() {
        let none: [&[u8]; 0] = [];
        assert_eq!(longest(&Trie::new(&none).unwrap(), b"a"), None);
        assert_eq!(longest(&Trie::default(), b""), None);
    }

    #[test]
    fn the_empty_key_is_what_everything_begins_with() {
        let trie = Trie::new(&["", "ab", "abc", "b"]).unwrap();
        for (text, expected) in
            [("", (0, 0)), ("a", (0, 0)), ("ab", (1, 2)), ("abd", (1, 2)), ("abcd", (2, 3)), ("b", (3, 1))]
        {
            assert_eq!(longest(&trie, text.as_bytes()), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn keys_may_be_nested_deeply() {
        let keys: Vec<_> = (0..3_000).map(|length| vec![b'a'; length]).collect();
        let trie = Trie::new(&keys).unwrap();
        assert_eq!(longest(&trie, &[b'a'; 5_000]), Some((2_999, 2_999)));
        assert_eq!(longest(&trie, b"aaab"), Some((3, 3)));
    }

    proptest! {
        #[test]
        fn the_longest_key_is_found(
            keys in prop::collection::btree_set("[ab\u{e9}]{0,5}", 0..40),
            text in "[ab\u{e9}]{0,7}",
        ) {
            let keys: BTreeSet<String> = keys;
            let keys: Vec<_> = keys.into_iter().collect();
            let trie = Trie::new(&keys).unwrap();
            let fitting = keys.iter().zip(0..).filter(|(key, _)| text.starts_with(key.as_str()));
            let expected = fitting.max_by_key(|(key, _)| key.len()).map(|(key, place)| (place, key.len()));
            prop_assert_eq!(longest(&trie, text.as_bytes()), expected);
        }
    }
}

//! The translated pattern while it is written: what a repetition applies to, groups with their flags, and the size.

use std::mem;

use super::classes;

/// The translated pattern. Atoms are what repetitions apply to.
pub(super) struct Output {
    /// What was translated.
    text: String,
    /// The innermost open group; without parentheses, the whole pattern.
    group: Group,
    /// The groups around it, from the outermost one.
    outer: Vec<Group>,
}

/// A group that is not closed yet, or the whole pattern.
struct Group {
    /// The positions of its parenthesis in the pattern and in the output.
    opened: usize,
    start: usize,
    /// What a repetition would apply to.
    last: Option<Atom>,
    /// The size of what it has before that.
    size: usize,
    /// The highest weight of its atoms.
    weight: u32,
    /// The flags for the rest of the group. They end with it.
    flags: Flags,
}

/// The flags of the rest of a group that matter for the translation.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    /// Letters match in any case.
    pub(super) ignores_case: bool,
    /// A dot also matches the end of a line.
    pub(super) dot_matches_newline: bool,
}

/// A part of the output that the next repetition applies to.
#[derive(Clone, Copy)]
struct Atom {
    /// Where it is in the output.
    start: usize,
    end: usize,
    /// Whether it ends with a repetition, so that another one needs parentheses around it.
    is_repeated: bool,
    /// An upper estimate of its size when compiled, in bytes.
    size: usize,
    /// The product of the counts of the repetitions inside each other.
    weight: u32,
}

/// How often something is repeated.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// The least number.
    pub(super) min: u32,
    /// `None` for any number.
    pub(super) max: Option<u32>,
}

impl Output {
    /// An empty output.
    pub(super) fn new(capacity: usize) -> Self {
        let text = String::with_capacity(capacity);
        Self { text, group: Group::new(0, 0, Flags::default()), outer: Vec::new() }
    }

    /// The text, and its size when compiled, in bytes; an open group is an error, by its position in the pattern.
    pub(super) fn finish(self) -> Result<(String, usize), usize> {
        match self.outer.is_empty() {
            true => Ok((self.text, self.group.whole_size().saturating_add(BASE_SIZE))),
            false => Err(self.group.opened),
        }
    }

    /// The flags at the current position.
    pub(super) fn flags(&self) -> Flags {
        self.group.flags
    }

    /// Writes an atom, with an upper estimate of its size when compiled.
    pub(super) fn atom(&mut self, size: usize, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        write(&mut self.text);
        self.add(Atom { start, end: self.text.len(), is_repeated: false, size, weight: 1 });
    }

    /// Writes a character by its number; a surrogate, which no text has, as a class without members.
    pub(super) fn literal(&mut self, scalar: u32) {
        let size = if self.group.flags.ignores_case { FOLDED_SIZE } else { LITERAL_SIZE };
        self.atom(size, |out| match char::from_u32(scalar) {
            Some(c) if c.is_ascii_alphanumeric() || !c.is_ascii() => out.push(c),
            Some(_) => classes::write_escape(out, scalar),
            None => out.push_str(classes::NOTHING),
        });
    }

    /// Begins another alternative.
    pub(super) fn alternative(&mut self) {
        self.text.push('|');
        self.group.settle();
        self.group.size = self.group.size.saturating_add(OPERATOR_SIZE);
    }

    /// Begins a group by `(` or `(?flags:`, at a position of the pattern.
    pub(super) fn open(&mut self, opened: usize, begin: &[&str], flags: Flags) {
        let start = self.text.len();
        self.text.extend(begin.iter().copied());
        let outer = mem::replace(&mut self.group, Group::new(opened, start, flags));
        self.outer.push(outer);
    }

    /// Sets flags for the rest of the group.
    pub(super) fn set_flags(&mut self, text: &str, flags: Flags) {
        if !text.is_empty() {
            self.text.extend(["(?", text, ")"]);
        }
        self.group.flags = flags;
    }

    /// Ends a group; false if none is open.
    pub(super) fn close(&mut self) -> bool {
        let Some(outer) = self.outer.pop() else { return false };
        let closed = mem::replace(&mut self.group, outer);
        self.text.push(')');
        let size = closed.whole_size().saturating_add(GROUP_SIZE);
        let end = self.text.len();
        self.add(Atom { start: closed.start, end, is_repeated: false, size, weight: closed.weight });
        true
    }

    /// Repeats the last atom. An error is the reason why RE2 does not do so.
    pub(super) fn repeat(&mut self, operator: &str, counts: Counts) -> Result<(), String> {
        let Counts { min, max } = counts;
        let Some(mut atom) = self.group.last else {
            return Err(format!("nothing is repeated by {operator:?}"));
        };
        if min > MAX_COUNT || max.is_some_and(|max| max > MAX_COUNT || max < min) {
            return Err(format!("{operator:?} is no range of counts up to {MAX_COUNT}"));
        }
        let count = max.unwrap_or(min).max(1);
        // No overflow: both are at most `MAX_COUNT`.
        atom.weight *= count;
        if atom.weight > MAX_COUNT && count > 1 {
            return Err(format!("{operator:?} repeats repetitions more than {MAX_COUNT} times in all"));
        }
        // `x{2,}` compiles to two copies and a loop.
        let copies = count as usize + usize::from(max.is_none());
        atom.size = atom.size.saturating_add(OPERATOR_SIZE).saturating_mul(copies);
        if atom.is_repeated {
            self.text.insert_str(atom.start, "(?:");
            self.text.insert(atom.end + 3, ')');
            atom.end += 4;
        }
        // Flags may stand between what is repeated and its repetition.
        self.text.insert_str(atom.end, operator);
        atom.end += operator.len();
        atom.is_repeated = true;
        self.group.weight = self.group.weight.max(atom.weight);
        self.group.last = Some(atom);
        Ok(())
    }

    /// Adds an atom.
    fn add(&mut self, atom: Atom) {
        self.group.settle();
        self.group.weight = self.group.weight.max(atom.weight);
        self.group.last = Some(atom);
    }
}

impl Group {
    /// A group that opens here.
    fn new(opened: usize, start: usize, flags: Flags) -> Self {
        Self { opened, start, last: None, size: 0, weight: 1, flags }
    }

    /// The last atom is repeated no more.
    fn settle(&mut self) {
        self.size = self.whole_size();
        self.last = None;
    }

    /// The size of the group so far.
    fn whole_size(&self) -> usize {
        self.size.saturating_add(self.last.map_or(0, |last| last.size))
    }
}

impl Flags {
    /// Applies flags such as `is-m`: those before the minus are set, those after it cleared.
    pub(super) fn with(mut self, flags: &str) -> Self {
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        for (flag, value) in [('i', &mut self.ignores_case), ('s', &mut self.dot_matches_newline)] {
            *value = on.contains(flag) || (*value && !off.contains(flag));
        }
        self
    }
}

/// The highest count of a repetition in RE2, and the highest product of those inside each other.
const MAX_COUNT: u32 = 1000;

/// Upper estimates of sizes when compiled, in bytes: measured, with a margin.
const BASE_SIZE: usize = 320;
const LITERAL_SIZE: usize = 64;
const FOLDED_SIZE: usize = 256;
const OPERATOR_SIZE: usize = 96;
const GROUP_SIZE: usize = 128;

//! Patterns of RE2's grammar, and texts for them, from a seed.

/// Numbers from a seed, the same in all releases (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Whether one of `of` cases happens.
    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A pattern; one of eight is damaged, and likely no regular expression.
    pub(super) fn pattern(&mut self) -> String {
        let mut pattern = String::new();
        self.alternatives(&mut pattern, 3);
        if self.one_in(8) {
            let mut chars: Vec<_> = pattern.chars().collect();
            let at = self.below(chars.len() + 1);
            match self.below(3) {
                0 => chars.truncate(at),
                1 => chars.insert(at, self.of(&DAMAGE)),
                _ if at < chars.len() => drop(chars.remove(at)),
                _ => {}
            }
            pattern = chars.into_iter().collect();
        }
        pattern
    }

    fn alternatives(&mut self, out: &mut String, depth: usize) {
        for number in 0..self.of(&[1, 1, 1, 2, 3]) {
            if number > 0 {
                out.push('|');
            }
            for _ in 0..self.below(4) {
                self.atom(out, depth);
                if self.one_in(3) {
                    self.repetition(out);
                }
            }
        }
    }

    fn atom(&mut self, out: &mut String, depth: usize) {
        match self.below(12) {
            0..=3 => out.push(self.of(&LITERALS)),
            4 => out.push_str(self.of(&SPECIAL)),
            5 | 6 => out.push_str(self.of(&ESCAPES)),
            7 | 8 => self.class(out),
            9 => {
                out.push_str(r"\Q");
                (0..self.below(4)).for_each(|_| out.push(self.of(&DAMAGE)));
                out.push_str(self.of(&[r"\E", r"\E", r"\E", ""]));
            }
            _ if depth == 0 => out.push('a'),
            _ => {
                out.push_str(self.of(&GROUPS));
                self.alternatives(out, depth - 1);
                out.push(')');
            }
        }
    }

    fn repetition(&mut self, out: &mut String) {
        out.push_str(self.of(&REPETITIONS));
        if self.one_in(4) {
            out.push('?');
        }
    }

    fn class(&mut self, out: &mut String) {
        out.push_str(self.of(&["[", "[", "[^"]));
        for _ in 0..=self.below(3) {
            match self.below(6) {
                0 | 1 => out.push(self.of(&IN_CLASSES)),
                2 => {
                    let (from, to) = (self.of(&IN_CLASSES), self.of(&IN_CLASSES));
                    let ordered = [from.min(to), '-', from.max(to)];
                    out.extend(if self.one_in(8) { [to, '-', from] } else { ordered });
                }
                3 => out.push_str(self.of(&POSIX)),
                4 => out.push_str(self.of(&ODD_IN_CLASSES)),
                _ => out.push_str(self.of(&CLASS_ESCAPES)),
            }
        }
        out.push(']');
    }

    /// A text that may match: characters of the pattern and others.
    pub(super) fn text(&mut self, pattern: &str) -> String {
        let of_pattern: Vec<_> = pattern.chars().collect();
        let length = self.of(&[0, 1, 1, 1, 2, 2, 3, 4, 6]);
        let mut text = String::new();
        for _ in 0..length {
            match self.below(4) {
                0 | 1 if !of_pattern.is_empty() => text.push(self.of(&of_pattern)),
                2 => text.push(self.of(&LITERALS)),
                _ => text.push(self.of(&IN_TEXTS)),
            }
        }
        text
    }
}

const LITERALS: [char; 24] = [
    'a', 'a', 'b', 'b', 'k', 'K', 's', '0', '9', '_', '-', '/', ':', ',', '&', '~', '<', '>', '#', ' ', '{',
    '}', ']', 'é',
];

const DAMAGE: [char; 20] =
    ['a', '(', ')', '[', ']', '{', '}', '\\', '*', '+', '?', '|', '^', '$', '.', '-', '&', 'E', '1', ','];

const SPECIAL: [&str; 8] = [".", "^", "$", ".", r"\A", r"\z", r"\b", r"\B"];

const ESCAPES: [&str; 36] = [
    r"\d",
    r"\D",
    r"\s",
    r"\S",
    r"\w",
    r"\W",
    r"\pL",
    r"\PL",
    r"\pN",
    r"\p{Nd}",
    r"\p{^Lu}",
    r"\P{Greek}",
    r"\p{Latin}",
    r"\pZ",
    r"\.",
    r"\<",
    r"\>",
    r"\_",
    r"\-",
    r"\/",
    r"\{",
    r"\&",
    r"\\",
    r"\n",
    r"\t",
    r"\v",
    r"\x41",
    r"\x{e9}",
    r"\x{1F600}",
    r"\101",
    r"\0",
    r"\07",
    r"\é",
    r"\1",
    r"\8",
    r"\h",
];

const GROUPS: [&str; 16] = [
    "(", "(", "(", "(?:", "(?:", "(?i)(", "(?i:", "(?s:", "(?m:", "(?U:", "(?i-s:", "(?P<n>", "(?<m>",
    "(?-i:", "(?x:", "(?ims)(",
];

const REPETITIONS: [&str; 20] = [
    "*", "+", "?", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}", "{,2}", "{", "{a}", "{2", "{2,1}",
    "{1,1001}", "{1000}", "**", "{01}",
];

const IN_CLASSES: [char; 24] = [
    'a', 'b', 'c', 'k', 'z', 'A', 'Z', '0', '9', '_', '-', '^', '&', '~', '[', '.', '*', '/', ' ', 'é', 'ÿ',
    'K', '\u{17f}', '😀',
];

const POSIX: [&str; 12] = [
    "[:alpha:]",
    "[:digit:]",
    "[:^digit:]",
    "[:word:]",
    "[:space:]",
    "[:punct:]",
    "[:upper:]",
    "[:^lower:]",
    "[:ascii:]",
    "[:xdigit:]",
    "[:nope:]",
    "[:alpha",
];

const ODD_IN_CLASSES: [&str; 12] =
    ["&&", "--", "~~", "a&&b", "a--c", "[[", "]", "^", "a-", "-a", r"\-", "[^a"];

const CLASS_ESCAPES: [&str; 16] = [
    r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", r"\pL", r"\P{Nd}", r"\n", r"\]", r"\[", r"\x{e9}", r"\101",
    r"\\", r"\^", r"\b",
];

/// Characters near the borders of classes, and those with variants in another case outside of ASCII.
pub(super) const IN_TEXTS: [char; 32] = [
    'A', 'B', 'Z', 'S', 'E', 'Q', 'n', 'z', '1', '2', '(', ')', '[', '*', '+', '?', '.', '\\', '^', '$', '|',
    '\n', '\t', '\u{b}', '\0', 'É', 'ÿ', 'K', '\u{17f}', 'ω', '٣', '😀',
];

/// Patterns that other syntaxes read in another way.
pub(super) const ODD: &[&str] = &[
    "a{,2}",
    "[a&&b]",
    r"\<a\>",
    "/v1/{id}",
    "x{",
    "[^[]+",
    "[[]x",
    r"\Qa.b\E+",
    r"\Q",
    r"a\Q\E*",
    r"\123",
    r"\18",
    "[a~~b]",
    "[a--c]",
    "a**",
    "a+*",
    "a{2}{3}",
    "(?:a{2}){3}",
    "(?:a{100}){100}",
    "(?:a{10}){100}",
    "(?x) a # b",
    "[]a]",
    "[^]a]",
    "[]",
    "[",
    "[^",
    "[a",
    "[a-",
    "[a-]",
    "[-a]",
    "[a-b-c]",
    "[z-a]",
    "()",
    "(|a)*",
    "(?i)(?-i)a",
    "(?i)*",
    "a(?i)*",
    "(?",
    "(?:",
    "(?P",
    "(?P<",
    "(?P<a",
    "(?P<a>",
    "(?P<a>b)(?P<a>c)",
    "(?<=a)",
    "(?!a)",
    "^*",
    "$+",
    r"\b*",
    r"\B?",
    "^{2}",
    "|",
    "||",
    "a||b",
    "*",
    "+a",
    "?",
    "(*)",
    "(|*)",
    "{2}",
    "a|{2}",
    "\u{0}",
    "a\u{0}b",
    r"\x{0}",
    r"\x{}",
    r"\x{110000}",
    r"\x{10FFFF}",
    r"\xg",
    r"\p",
    r"\p{",
    r"\p{}",
    r"\pX",
    r"\p{^}",
    r"[\pL-z]",
    r"[a-\d]",
    r"[\d-z]",
    "[[:alpha:]-z]",
    "[[:alpha:]",
    "[:alpha:]",
    "[[:foo:]]",
    "[[.a.]]",
    "[[=a=]]",
    "(?i)K",
    "(?i)s+",
    "(?i)[^k]",
    "(?i)é",
    "(?s).",
    ".",
    "(?m)^a$",
    "(?m)^$",
    "(?U)a+",
    "(?sm).^.",
    r"\z\A",
    r"a\z",
    r"\Ab",
    r"\Z",
    r"\G",
    r"\K",
    r"\R",
    r"\X",
];

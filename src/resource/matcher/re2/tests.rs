use super::{super::Regex, translate};

/// What RE2 does with a pattern.
enum Does {
    /// Accepts it; it matches the first texts as a whole, and not the others.
    Match(&'static [&'static str], &'static [&'static str]),
    /// Rejects it, for a reason that is named so here.
    Reject(&'static str),
}

use Does::{Match, Reject};

/// Checked against RE2 by its Python module, as were 300,000 random patterns, with their matches of 80 texts each.
const VECTORS: &[(&str, Does)] = &[
    // Braces that begin no repetition are literals.
    ("/v1/{id}", Match(&["/v1/{id}"], &["/v1/id", "/v1/17"])),
    ("x{", Match(&["x{"], &["x"])),
    ("a{,2}", Match(&["a{,2}"], &["", "a", "aa"])),
    ("{}", Match(&["{}"], &[""])),
    ("a{01}", Match(&["a{01}"], &["a"])),
    ("a{1,2,3}", Match(&["a{1,2,3}"], &["a"])),
    ("a{2,3}", Match(&["aa", "aaa"], &["a", "aaaa", "a{2,3}"])),
    ("a{2,}", Match(&["aa", "aaaa"], &["a"])),
    ("a{0}", Match(&[""], &["a"])),
    ("{2}", Reject("nothing is repeated by \"{2}\"")),
    ("a{3,2}", Reject("\"{3,2}\" is no range of counts up to 1000")),
    ("a{1000}", Match(&[], &["a"])),
    ("a{1001}", Reject("\"{1001}\" is no range of counts up to 1000")),
    ("a{99999999999}", Reject("\"{99999999999}\" is no range of counts up to 1000")),
    ("(?:a{10}b){100}", Match(&[], &["a"])),
    ("(?:a{10}b){101}", Reject("\"{101}\" repeats repetitions more than 1000 times in all")),
    // Repetitions are not repeated, but flags may stand before one.
    ("a**", Reject("RE2 does not repeat a repetition: \"*\"")),
    ("a++", Reject("RE2 does not repeat a repetition: \"+\"")),
    ("a{2}{3}", Reject("RE2 does not repeat a repetition: \"{3}\"")),
    ("a*?", Match(&["", "aa"], &["b"])),
    ("a*??", Reject("RE2 does not repeat a repetition: \"?\"")),
    ("(a*)*", Match(&["", "aa"], &["b"])),
    ("a(?i)*", Match(&["", "aa"], &["A"])),
    ("a*(?i)*b", Match(&["b", "aaB"], &["Ab"])),
    ("*a", Reject("nothing is repeated by \"*\"")),
    ("a|*", Reject("nothing is repeated by \"*\"")),
    ("(?i)*", Reject("nothing is repeated by \"*\"")),
    ("^*a", Match(&["a"], &["*a"])),
    (r"\b{2}a", Match(&["a"], &["b"])),
    // Brackets within brackets, and what the `regex` crate takes for operations on classes.
    ("[^[]+", Match(&["abc", "]"], &["a[c"])),
    ("[[]x", Match(&["[x"], &["x"])),
    ("[]a]", Match(&["]", "a"], &["[]a]"])),
    ("[^]a]", Match(&["b"], &["]", "a"])),
    ("[a&&b]+", Match(&["a&b"], &["", "c"])),
    ("[a~~b]+", Match(&["a~b"], &["c"])),
    ("[a--c]", Reject("the range ends before it begins")),
    ("[+--]+", Match(&["+,-"], &["a"])),
    ("[a-]+", Match(&["a-"], &["b"])),
    ("[-a]+", Match(&["a-"], &["b"])),
    (r"[\d-z]+", Match(&["1-z"], &["e"])),
    (r"[a-\d]", Reject(r"RE2 has no escape `\d` here")),
    ("[b-a]", Reject("the range ends before it begins")),
    ("[", Reject("`[` without `]`")),
    ("[]", Reject("`[` without `]`")),
    ("[a#-& ]+", Match(&["a #$%&"], &["'"])),
    // Classes by names: those of Perl are of ASCII, and `\s` has no vertical tab.
    ("[[:alpha:]_]+", Match(&["aZ_"], &["é", "1"])),
    ("[[:^alpha:]]", Match(&["1", "é"], &["a"])),
    ("[[:space:]]", Match(&[" ", "\u{b}"], &["\u{a0}"])),
    ("[[:foo:]]", Reject("not a class of POSIX, such as `[:alpha:]`")),
    ("[[:x]", Match(&["[", ":", "x"], &["y"])),
    (r"\s", Match(&[" ", "\t", "\n"], &["\u{b}", "\u{a0}"])),
    (r"[^\S]", Match(&[" "], &["\u{b}"])),
    (r"\d\D\w\W", Match(&["1xa."], &["1xé."])),
    (r"\W", Match(&["é", "."], &["a"])),
    (r"(?i)\w", Match(&["k", "\u{212a}"], &["é"])),
    (r"(?i)[^k]", Match(&["é"], &["K", "\u{212a}"])),
    (r"\pL\p{Greek}\P{Lu}\p{^Nd}", Match(&["aαbc"], &["aabc", "1αbc", "aαBc"])),
    (r"\p{Any}\PC", Match(&["\u{0}\u{378}"], &["\u{378}\u{0}"])),
    (r"[\pN\p{Ll}]+", Match(&["a1²"], &["A"])),
    (r"\p{Cs}", Match(&[], &["a", "é"])),
    (r"\p{greek}", Reject("not a general category, such as `Lu`, or a script, such as `Greek`, of RE2")),
    (r"\p{Letter}", Reject("not a general category, such as `Lu`, or a script, such as `Greek`, of RE2")),
    (r"\p{Alphabetic}", Reject("not a general category, such as `Lu`, or a script, such as `Greek`, of RE2")),
    (r"\p{L", Reject("the property has no closing `}`")),
    // Characters are matched as a whole.
    (".", Match(&["a", "é", "\u{1f600}"], &["", "\n", "ab"])),
    ("(?s).", Match(&["\n"], &[""])),
    ("(?Us).{2}", Match(&["é\n", "\u{1f600}a"], &["\u{1f600}"])),
    ("[^/]{3}", Match(&["aéb", "a\nb"], &["éb", "a/b"])),
    (r"é\C\C", Match(&["éé", "éab"], &["éa"])),
    // Escapes.
    (r"\Qa.b*\E+", Match(&["a.b*", "a.b**"], &["aab", "a.b"])),
    (r"\Q(", Match(&["("], &[""])),
    (r"\E", Reject(r"RE2 has no escape `\E` here")),
    (r"\123\07\0\01x", Match(&["S\u{7}\u{0}\u{1}x"], &["123"])),
    (r"\18", Reject("RE2 has no backreferences")),
    (r"(a)\1", Reject("RE2 has no backreferences")),
    (r"\8", Reject("RE2 has no backreferences")),
    (r"\x41\x{42}\x{1F600}\x{00043}", Match(&["AB\u{1f600}C"], &["x"])),
    (r"\x4", Reject("`\\x` is followed by two hexadecimal digits, or `{` digits `}` up to 10FFFF")),
    (r"\x{110000}", Reject("`\\x` is followed by two hexadecimal digits, or `{` digits `}` up to 10FFFF")),
    (r"\x{D800}|[\x{D800}-\x{DFFF}]|[\x{D7FF}-\x{E000}]", Match(&["\u{d7ff}", "\u{e000}"], &["a"])),
    (r"\a\f\n\r\t\v", Match(&["\u{7}\u{c}\n\r\t\u{b}"], &["afnrtv"])),
    (r"\<a\>", Match(&["<a>"], &["a"])),
    (r"\_\-\ \%\é", Reject(r"RE2 has no escape `\\u{e9}` here")),
    (r"\_\-\ \%\&", Match(&["_- %&"], &[""])),
    (r"\h", Reject(r"RE2 has no escape `\h` here")),
    (r"[\b]", Reject(r"RE2 has no escape `\b` here")),
    (r"a\", Reject("`\\` at the end")),
    // Assertions.
    (r"\Aa\b.\B.*\z", Match(&["a.."], &["ab.", "a.b"])),
    (r"é\b", Match(&[], &["é"])),
    (r"a\Z", Reject(r"RE2 has no escape `\Z` here")),
    ("(?m)a$\n^b", Match(&["a\nb"], &["ab"])),
    ("a$\nb", Match(&[], &["a\nb"])),
    ("(?=a)", Reject("RE2 has no look-around assertions")),
    ("(?<!a)", Reject("RE2 has no look-around assertions")),
    // Groups and flags.
    ("(?P<n>a)(?<m>b)(?:c)", Match(&["abc"], &[""])),
    ("(?P<>a)", Reject("the group has no name of letters, digits and `_`")),
    ("(?P=n)", Reject("`(?` begins no group, and no flags out of `imsU`")),
    ("(?i)a(?-i)b|c", Match(&["Ab", "c"], &["aB", "C"])),
    ("(a(?i)b)c", Match(&["aBc"], &["aBC"])),
    ("(?i-s:a.)b", Match(&["Axb"], &["AxB"])),
    ("(?)a(?ii)b(?i-i)c", Match(&["aBc"], &["abC"])),
    ("(?x) a", Reject("`(?` begins no group, and no flags out of `imsU`")),
    ("(?-)a", Reject("`(?` begins no group, and no flags out of `imsU`")),
    ("(a", Reject("`(` without `)`")),
    ("a)|(b", Reject("`)` without `(`")),
    ("a||b", Match(&["a", "", "b"], &["|"])),
    (" a#b ", Match(&[" a#b "], &["a"])),
];

#[test]
fn m6_the_syntax_is_that_of_re2() {
    for (pattern, does) in VECTORS {
        match (does, Regex::new(pattern)) {
            (Match(yes, no), Ok(regex)) => {
                yes.iter().for_each(|text| assert!(regex.matches(text), "{pattern:?} on {text:?}"));
                no.iter().for_each(|text| assert!(!regex.matches(text), "{pattern:?} on {text:?}"));
            }
            (Reject(reason), Err(error)) => {
                let (error, start) =
                    (error.to_string(), format!("{pattern:?} is no regex: {reason} at byte "));
                assert!(error.starts_with(&start), "{error}");
            }
            (Match(..), Err(error)) => panic!("{error}"),
            (Reject(reason), Ok(_)) => panic!("{pattern:?} is accepted, and RE2 rejects it: {reason}"),
        }
    }
}

#[test]
fn m6_a_pattern_has_a_limited_number_of_tables_of_unicode() {
    let reason = |pattern: String| translate(&pattern).unwrap_err().reason;
    for table in [r"\pL", r"[\x{80}-\x{FFFF}]"] {
        assert!(Regex::new(&table.repeat(8)).is_ok());
        assert!(translate(&table.repeat(32)).is_ok());
        assert_eq!(reason(table.repeat(33)), "more than 32 properties and long ranges of Unicode");
    }
}

#[test]
fn m6_the_estimate_of_a_size_is_above_what_the_compiled_pattern_has() {
    let of_vectors =
        VECTORS.iter().filter(|(_, does)| matches!(does, Match(..))).map(|(pattern, _)| *pattern);
    let large =
        [r"/api/v[0-9]+/.*", "[^/]{1,253}", "a{1000}", r"(?i)[a-zé]{30}", "(?:ab{1,99}|c){10}", r"[\d.-]*"];
    for pattern in of_vectors.chain(large) {
        let translated = translate(pattern).unwrap();
        let anchored = format!(r"\A(?:{})\z", translated.pattern);
        let built = regex::bytes::RegexBuilder::new(&anchored).size_limit(translated.size).build();
        assert!(built.is_ok(), "{pattern:?}: {}", translated.size);
    }
    assert!(translate("/api/v[0-9]+/shop4000/.*").unwrap().size < 4 << 10);
}

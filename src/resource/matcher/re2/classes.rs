//! The classes of characters that have a name in RE2.

use std::fmt::Write as _;

/// A class of characters, other than one in brackets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Class<'a> {
    /// `\d`, `\s` or `\w`, and their negations.
    Perl { members: &'static str, is_negated: bool },
    /// `\p{…}`.
    Property { property: Property<'a>, is_negated: bool },
}

/// A property of Unicode by one of RE2's names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Property<'a> {
    /// All characters.
    Any,
    /// `C` without the unassigned characters.
    Other,
    /// `Cs`: no text has any.
    Surrogate,
    /// A general category by its short name.
    Category(&'a str),
    /// A script by its name.
    Script(&'a str),
}

impl<'a> Class<'a> {
    /// The class of an escape `\d`. RE2's are of ASCII, and `\s` has no vertical tab.
    pub(super) fn perl(c: char) -> Option<Self> {
        let members = match c.to_ascii_lowercase() {
            'd' => "0-9",
            's' => r"\t\n\x0C\r\x20",
            'w' => "0-9A-Za-z_",
            _ => return None,
        };
        Some(Self::Perl { members, is_negated: c.is_ascii_uppercase() })
    }

    /// The class of a name in `\p{…}`. Unlike in the `regex` crate, only general categories and scripts have one, and it is
    /// written in one way.
    pub(super) fn property(name: &'a str, is_negated: bool) -> Option<Self> {
        let property = match name {
            "Any" => Property::Any,
            "C" => Property::Other,
            "Cs" => Property::Surrogate,
            name if CATEGORIES.contains(&name) => Property::Category(name),
            name if SCRIPTS.binary_search(&name).is_ok() => Property::Script(name),
            _ => return None,
        };
        Some(Self::Property { property, is_negated })
    }

    /// Whether all members are of ASCII.
    pub(super) fn is_ascii(&self) -> bool {
        matches!(self, Self::Perl { is_negated: false, .. })
    }

    /// An upper estimate of its size when compiled, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Perl { .. } => super::UNICODE_SIZE,
            Self::Property { .. } => super::TABLE_SIZE,
        }
    }

    /// The characters of ASCII that are no members, if those are all.
    pub(super) fn excluded(&self) -> Option<&'static str> {
        match *self {
            Self::Perl { members, is_negated: true } => Some(members),
            Self::Perl { is_negated: false, .. } | Self::Property { .. } => None,
        }
    }

    /// Writes the class, as an item of its own or inside of brackets.
    pub(super) fn write(&self, out: &mut String) {
        match *self {
            Self::Perl { members, is_negated } => {
                out.extend([if is_negated { "[^" } else { "[" }, members, "]"]);
            }
            Self::Property { property, is_negated } => {
                let sign = if is_negated { r"\P" } else { r"\p" };
                match property {
                    Property::Any => out.push_str(if is_negated { NOTHING } else { EVERYTHING }),
                    Property::Surrogate => out.push_str(if is_negated { EVERYTHING } else { NOTHING }),
                    Property::Other => {
                        // Unlike the regex crate, RE2 has no unassigned characters in `C`; and UTF-8 has no surrogates.
                        out.extend([if is_negated { "[^" } else { "[" }, r"\p{Cc}\p{Cf}\p{Co}]"]);
                    }
                    Property::Category(name) => out.extend([sign, "{gc=", name, "}"]),
                    Property::Script(name) => out.extend([sign, "{sc=", name, "}"]),
                }
            }
        }
    }
}

/// Writes all characters but some of ASCII, by their bytes. That is a quarter of the size of a class of characters, and what
/// `.` and `[^/]` are. In text, all bytes from 0x80 to 0xBF after the first one of a character belong to it; the flag `U` would
/// end it before the last of them.
pub(super) fn write_all_but(out: &mut String, excluded: &str) {
    out.extend([r"(?-uU:[^", excluded, r"\x80-\xFF]|[\xC2-\xF4][\x80-\xBF]+)"]);
}

/// Writes a range in a class, without the surrogates in it.
pub(super) fn write_range(class: &mut String, low: u32, high: u32) {
    // Without surrogates, which the regex crate rejects in classes, and which no valid text contains.
    let parts = [(low, high.min(FIRST_SURROGATE - 1)), (low.max(LAST_SURROGATE + 1), high)];
    let mut is_empty = true;
    for (low, high) in parts.into_iter().filter(|(low, high)| low <= high) {
        write_escape(class, low);
        if low < high {
            class.push('-');
            write_escape(class, high);
        }
        is_empty = false;
    }
    if is_empty {
        class.push_str(NOTHING);
    }
}

/// Writes a character by its number, which has no other meaning anywhere in a pattern.
pub(super) fn write_escape(out: &mut String, scalar: u32) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\x{{{scalar:X}}}");
}

/// Whether `[:name:]` is a class.
pub(super) fn is_posix(name: &str) -> bool {
    POSIX.contains(&name)
}

/// A class without members.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// A class of all characters, with the end of a line.
const EVERYTHING: &str = r"[\x{0}-\x{10FFFF}]";

/// Surrogates are no characters: the `regex` crate has no classes with them, and RE2 has.
const FIRST_SURROGATE: u32 = 0xd800;

const LAST_SURROGATE: u32 = 0xdfff;

/// The names of POSIX's classes, which the `regex` crate has, too.
const POSIX: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The general categories of Unicode.
#[rustfmt::skip]
const CATEGORIES: &[&str] = &[
    "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
];

/// The scripts of Unicode that RE2 knows, sorted.
#[rustfmt::skip]
const SCRIPTS: &[&str] = &[
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Bassa_Vah",
    "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid",
    "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Chakma", "Cham", "Cherokee", "Chorasmian", "Common",
    "Coptic", "Cuneiform", "Cypriot", "Cypro_Minoan", "Cyrillic", "Deseret", "Devanagari", "Dives_Akuru",
    "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic", "Ethiopic", "Georgian", "Glagolitic",
    "Gothic", "Grantha", "Greek", "Gujarati", "Gunjala_Gondi", "Gurmukhi", "Han", "Hangul", "Hanifi_Rohingya",
    "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited", "Inscriptional_Pahlavi",
    "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi", "Kayah_Li", "Kharoshthi",
    "Khitan_Small_Script", "Khmer", "Khojki", "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "Linear_A",
    "Linear_B", "Lisu", "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam", "Mandaic", "Manichaean",
    "Marchen", "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive",
    "Meroitic_Hieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean",
    "Nag_Mundari", "Nandinagari", "New_Tai_Lue", "Newa", "Nko", "Nushu", "Nyiakeng_Puachue_Hmong", "Ogham",
    "Ol_Chiki", "Old_Hungarian", "Old_Italic", "Old_North_Arabian", "Old_Permic", "Old_Persian", "Old_Sogdian",
    "Old_South_Arabian", "Old_Turkic", "Old_Uyghur", "Oriya", "Osage", "Osmanya", "Pahawh_Hmong", "Palmyrene",
    "Pau_Cin_Hau", "Phags_Pa", "Phoenician", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra",
    "Sharada", "Shavian", "Siddham", "SignWriting", "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo",
    "Sundanese", "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri",
    "Tamil", "Tangsa", "Tangut", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto",
    "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi", "Yi", "Zanabazar_Square",
];

//! Protobuf messages as trees of fields, to change them without breaking what holds them together.
//!
//! A change of bytes mostly breaks a length, and then nothing behind it is reached. A change of the tree keeps every length
//! right: fields go, come twice, swap their places or take the values of others.

/// A message whose type is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree(Vec<Field>);

#[derive(Debug, Clone, PartialEq)]
struct Field {
    number: u32,
    value: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    /// What can be read as a message.
    Message(Tree),
    Bytes(Vec<u8>),
}

impl Tree {
    /// Reads a message; `None` for bytes that are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_below(bytes, 0)
    }

    fn read_below(mut bytes: &[u8], depth: usize) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number))?;
            let value = match tag & 7 {
                0 => Value::Varint(varint(&mut bytes)?),
                1 => Value::Fixed64(take(&mut bytes, 8)?.try_into().ok()?),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    Value::of(take(&mut bytes, length)?, depth)
                }
                5 => Value::Fixed32(take(&mut bytes, 4)?.try_into().ok()?),
                _ => return None,
            };
            fields.push(Field { number, value });
        }
        Some(Self(fields))
    }

    /// The bytes of the message.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Field { number, value } in &self.0 {
            let number = u64::from(*number) << 3;
            match value {
                Value::Varint(value) => {
                    put(number, &mut bytes);
                    put(*value, &mut bytes);
                }
                Value::Fixed64(value) => {
                    put(number | 1, &mut bytes);
                    bytes.extend(value);
                }
                Value::Fixed32(value) => {
                    put(number | 5, &mut bytes);
                    bytes.extend(value);
                }
                Value::Message(message) => put_bytes(number, &message.write(), &mut bytes),
                Value::Bytes(value) => put_bytes(number, value, &mut bytes),
            }
        }
        bytes
    }

    /// Changes one place of the message, or puts in a part of another one.
    pub fn mutate(&mut self, other: Option<&Self>, random: &mut Random) {
        // Down to some message within, as deep as chance has it.
        let mut here = self;
        while random.below(3) > 0 {
            let inner =
                here.0.iter().enumerate().filter(|(_, field)| matches!(field.value, Value::Message(_)));
            let inner: Vec<_> = inner.map(|(index, _)| index).collect();
            let Some(&index) = inner.get(random.below(inner.len())) else { break };
            match &mut here.0[index].value {
                Value::Message(message) => here = message,
                _ => unreachable!("only messages were chosen"),
            }
        }
        here.mutate_here(other, random);
    }

    fn mutate_here(&mut self, other: Option<&Self>, random: &mut Random) {
        let index = random.below(self.0.len());
        let fields = &mut self.0;
        if fields.is_empty() {
            return fields
                .push(Field { number: 1 + random.below(60) as u32, value: Value::Varint(random.next()) });
        }
        match random.below(9) {
            0 => drop(fields.remove(index)),
            1 => fields.push(fields[index].clone()),
            2 => {
                let with = random.below(fields.len());
                fields.swap(index, with);
            }
            3 => fields[index].number = 1 + random.below(60) as u32,
            4 => fields[index].value = fields[random.below(fields.len())].value.clone(),
            5 => match other.map(|other| other.somewhere(random)) {
                Some(field) => fields.insert(index, field),
                None => fields[index].value.mutate(random),
            },
            _ => fields[index].value.mutate(random),
        }
    }

    /// One of the fields, however deep.
    fn somewhere(&self, random: &mut Random) -> Field {
        let none = Field { number: 1, value: Value::Bytes(Vec::new()) };
        let Some(field) = self.0.get(random.below(self.0.len())) else { return none };
        match &field.value {
            Value::Message(message) if random.below(3) > 0 => message.somewhere(random),
            _ => field.clone(),
        }
    }
}

impl Value {
    /// Text is mostly no message by chance; where it is one, it is changed as one now and then.
    fn of(bytes: &[u8], depth: usize) -> Self {
        let is_text = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
        match Tree::read_below(bytes, depth + 1) {
            Some(message) if !bytes.is_empty() && !is_text && depth < DEEPEST => Self::Message(message),
            Some(_) | None => Self::Bytes(bytes.to_vec()),
        }
    }

    fn mutate(&mut self, random: &mut Random) {
        match self {
            Self::Varint(value) => {
                *value = match random.below(4) {
                    0 => value.wrapping_add(1),
                    1 => value.wrapping_sub(1),
                    2 => NUMBERS[random.below(NUMBERS.len())],
                    _ => random.next(),
                }
            }
            Self::Fixed64(value) => *value = f64::from_bits(random.next()).to_le_bytes(),
            Self::Fixed32(value) => *value = (random.next() as u32).to_le_bytes(),
            Self::Message(message) => message.mutate_here(None, random),
            Self::Bytes(bytes) => match random.below(4) {
                0 => bytes.clear(),
                1 => *bytes = TEXTS[random.below(TEXTS.len())].as_bytes().to_vec(),
                2 => bytes.push(random.next() as u8),
                _ => {
                    let index = random.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(index) {
                        *byte = random.next() as u8;
                    }
                }
            },
        }
    }
}

/// Numbers by chance, from a seed.
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u32) -> Self {
        Self(u64::from(seed) << 1 | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { ((self.next() >> 32) as usize) % end }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn put(mut value: u64, bytes: &mut Vec<u8>) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_bytes(number: u64, value: &[u8], bytes: &mut Vec<u8>) {
    put(number | 2, bytes);
    put(value.len() as u64, bytes);
    bytes.extend(value);
}

const DEEPEST: usize = 40;
const NUMBERS: [u64; 10] = [0, 1, 2, 100, 101, 65_535, 65_536, u32::MAX as u64, i64::MAX as u64, u64::MAX];
const TEXTS: [&str; 16] = [
    "*",
    "*.a",
    "a*b",
    "/",
    "(",
    "a|b",
    "[^x]{9}{9}",
    "0.0.0.0",
    "::ffff:1.2.3.4",
    "xdstp://a/b.C/d",
    "grpc-x",
    ":scheme",
    "host",
    "type.googleapis.com/xds.type.v3.TypedStruct",
    "unavailable,CANCELLED",
    "\u{1f980}",
];

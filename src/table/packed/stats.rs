//! The statistics of a file as a template and its values: the JSON text comes back byte by byte, and one value is
//! read without parsing the others.
//!
//! # Why templates
//! Files of a table differ in the values of their statistics, not in the names around them. The text between the
//! values is kept once; a number, date or timestamp takes a few bytes.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{Datelike as _, NaiveDate};

use super::bytes::{Input, put_signed, put_varint, text};
use super::dictionary::Dictionary;

/// Deeper objects are kept as text.
const MAX_DEPTH: usize = 64;
/// More values than this are kept as text.
const MAX_HOLES: usize = 4096;

/// What the statistics of many files have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// The text before each value, and behind the last one.
    literals: Vec<Box<str>>,
    /// The names that lead to each value.
    holes: Vec<Box<[Box<str>]>>,
}

/// The statistics of a file in a snapshot.
#[derive(Debug, Clone)]
pub enum PackedStats<'a> {
    Absent,
    /// As they are in the log.
    Text(&'a str),
    Values(TemplateValues<'a>),
}

/// Values of a template.
#[derive(Debug, Clone)]
pub struct TemplateValues<'a> {
    pub(super) template: Arc<Template>,
    pub(super) values: &'a [u8],
}

impl<'a> PackedStats<'a> {
    /// The JSON as it was in the log.
    pub fn to_json(&self) -> Option<Cow<'a, str>> {
        match self {
            PackedStats::Absent => None,
            PackedStats::Text(text) => Some(Cow::Borrowed(text)),
            PackedStats::Values(values) => Some(Cow::Owned(values.render())),
        }
    }
}

impl TemplateValues<'_> {
    /// Where the value under `path` stands among the values of every file with this template.
    pub fn find(&self, path: &[&str]) -> Option<usize> {
        let same = |hole: &[Box<str>]| {
            hole.len() == path.len() && hole.iter().zip(path).all(|(a, b)| **a == **b)
        };
        self.template.holes.iter().position(|hole| same(hole))
    }

    /// Tells templates from each other while their table is open.
    pub fn template_id(&self) -> usize {
        Arc::as_ptr(&self.template) as usize
    }

    /// The JSON text of the value at a place that [`Self::find`] has given.
    pub fn value(&self, at: usize) -> String {
        let mut input = Input(self.values);
        for _ in 0..at {
            skip_value(&mut input);
        }
        let mut out = String::new();
        render_value(&mut input, &mut out);
        out
    }

    /// The value at a place, if it is an integer that is written as one.
    pub fn integer(&self, at: usize) -> Option<i64> {
        let mut input = Input(self.values);
        for _ in 0..at {
            skip_value(&mut input);
        }
        match Head::read(&mut input) {
            Head::Integer(value) => Some(value),
            Head::Bare(_) | Head::Quoted(_) | Head::Instant(_) | Head::Ntz(_) | Head::Date(_) => {
                None
            }
        }
    }

    fn render(&self) -> String {
        let mut input = Input(self.values);
        let mut out = String::with_capacity(self.values.len() * 3);
        let mut literals = self.template.literals.iter();
        for _ in &self.template.holes {
            out.extend(literals.next().map(|l| &**l));
            render_value(&mut input, &mut out);
        }
        out.extend(literals.next().map(|l| &**l));
        out
    }
}

/// Packs statistics. Keeps the template that fitted last, which fits nearly always.
#[derive(Debug, Default)]
pub(super) struct StatsPacker {
    last: Option<(u64, Arc<Template>)>,
}

impl StatsPacker {
    /// Appends the id of a template and the values of `json`; gives them back. `None`, with nothing appended, when
    /// the text must be kept as it is.
    pub(super) fn pack(
        &mut self,
        json: &str,
        dictionary: &Dictionary,
        out: &mut Vec<u8>,
    ) -> Option<(Arc<Template>, usize)> {
        let start = out.len();
        if let Some((id, template)) = &self.last {
            put_varint(out, *id);
            let values = out.len();
            if template.fill(json.as_bytes(), out).is_some() {
                return Some((Arc::clone(template), values));
            }
            out.truncate(start);
        }
        let (shape, template) = Template::of(json)?;
        let (id, template) = dictionary.template_id(&shape, template)?;
        put_varint(out, id);
        let values = out.len();
        if template.fill(json.as_bytes(), out).is_none() {
            out.truncate(start);
            return None;
        }
        self.last = Some((id, Arc::clone(&template)));
        Some((template, values))
    }
}

impl Template {
    /// The shape of a text; `None` when it is no JSON object, or one that is read differently from reader to reader.
    fn of(json: &str) -> Option<(Vec<u8>, Template)> {
        let mut scan = Scan {
            text: json.as_bytes(),
            at: 0,
            literal: 0,
            path: Vec::new(),
            template: Template {
                literals: Vec::new(),
                holes: Vec::new(),
            },
        };
        scan.space();
        scan.object()?;
        scan.space();
        if scan.at != json.len() {
            return None;
        }
        let last = json.get(scan.literal..)?;
        scan.template.literals.push(last.into());
        let mut shape = Vec::new();
        for literal in &scan.template.literals {
            shape.extend_from_slice(literal.as_bytes());
            // No byte of any text.
            shape.push(0xff);
        }
        Some((shape, scan.template))
    }

    /// Appends the values of a text of this shape.
    fn fill(&self, json: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut rest = json;
        let mut literals = self.literals.iter();
        for _ in &self.holes {
            rest = rest.strip_prefix(literals.next()?.as_bytes())?;
            let len = value_len(rest)?;
            let (value, behind) = rest.split_at_checked(len)?;
            pack_value(value, out);
            rest = behind;
        }
        (rest == literals.next()?.as_bytes()).then_some(())
    }

    pub(super) fn num_records_at(&self) -> Option<usize> {
        let is_count = |hole: &[Box<str>]| matches!(hole, [name] if &**name == "numRecords");
        self.holes.iter().position(|hole| is_count(hole))
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the text behind the last value starts.
    literal: usize,
    path: Vec<Box<str>>,
    template: Template,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn object(&mut self) -> Option<()> {
        if self.path.len() == MAX_DEPTH {
            return None;
        }
        self.expect(b'{')?;
        self.space();
        if self.expect(b'}').is_some() {
            return Some(());
        }
        let mut names: Vec<Box<str>> = Vec::new();
        loop {
            self.space();
            let name = self.name()?;
            // Which of two members counts is not for us to say.
            if names.contains(&name) {
                return None;
            }
            names.push(name.clone());
            self.space();
            self.expect(b':')?;
            self.space();
            self.path.push(name);
            if self.peek()? == b'{' {
                self.object()?;
            } else {
                self.hole()?;
            }
            self.path.pop();
            self.space();
            if self.expect(b'}').is_some() {
                return Some(());
            }
            self.expect(b',')?;
        }
    }

    fn name(&mut self) -> Option<Box<str>> {
        if self.peek()? != b'"' {
            return None;
        }
        let rest = self.text.get(self.at..)?;
        let len = value_len(rest)?;
        self.at += len;
        serde_json::from_slice::<String>(rest.get(..len)?)
            .ok()
            .map(Into::into)
    }

    fn hole(&mut self) -> Option<()> {
        if self.template.holes.len() == MAX_HOLES {
            return None;
        }
        let len = value_len(self.text.get(self.at..)?)?;
        let literal = self.text.get(self.literal..self.at)?;
        self.template.literals.push(text(literal).into());
        self.template.holes.push(self.path.clone().into());
        self.at += len;
        self.literal = self.at;
        Some(())
    }
}

/// Bytes of the value at the front of `rest`: text with its quotes, an array with all in it, or a bare word.
fn value_len(rest: &[u8]) -> Option<usize> {
    match rest.first()? {
        b'"' => text_len(rest),
        b'[' => array_len(rest),
        b'{' => None,
        _ => {
            let end = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            let len = rest.iter().position(end).unwrap_or(rest.len());
            let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
            (len > 0 && rest.iter().take(len).all(plain)).then_some(len)
        }
    }
}

/// Bytes of the JSON text at the front of `rest`, quotes included.
fn text_len(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match rest.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn array_len(rest: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'"' => at += text_len(rest.get(at..)?)?,
            b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// The kind of a value, in the low bits of its first byte; the high ones hold a small number or length.
const BARE: u8 = 0;
const QUOTED: u8 = 1;
const INTEGER: u8 = 2;
const INSTANT: u8 = 3;
const NTZ: u8 = 4;
const DATE: u8 = 5;
/// The number follows.
const FOLLOWS: u8 = 31;

fn put_head(out: &mut Vec<u8>, kind: u8, number: u64) {
    if number < u64::from(FOLLOWS) {
        out.push(kind | (number as u8) << 3);
    } else {
        out.push(kind | FOLLOWS << 3);
        put_varint(out, number);
    }
}

fn pack_value(value: &[u8], out: &mut Vec<u8>) {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    match inner {
        Some(inner) => {
            if let Some(millis) = instant(inner, b"Z") {
                out.push(INSTANT);
                put_signed(out, millis);
            } else if let Some(millis) = instant(inner, b"") {
                out.push(NTZ);
                put_signed(out, millis);
            } else if let Some(days) = date(inner) {
                out.push(DATE);
                put_signed(out, days);
            } else {
                put_head(out, QUOTED, inner.len() as u64);
                out.extend_from_slice(inner);
            }
        }
        None => match integer(value) {
            Some(number) => {
                let zigzag = (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned();
                put_head(out, INTEGER, zigzag);
            }
            None => {
                put_head(out, BARE, value.len() as u64);
                out.extend_from_slice(value);
            }
        },
    }
}

/// A packed value.
enum Head<'a> {
    Bare(&'a [u8]),
    Quoted(&'a [u8]),
    Integer(i64),
    Instant(i64),
    Ntz(i64),
    Date(i64),
}

impl<'a> Head<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        let first = input.byte();
        let number = |input: &mut Input<'a>| match first >> 3 {
            FOLLOWS => input.varint(),
            small => u64::from(small),
        };
        let bytes = |input: &mut Input<'a>| {
            let len = number(input);
            input.take(usize::try_from(len).unwrap_or(usize::MAX))
        };
        match first & 7 {
            BARE => Head::Bare(bytes(input)),
            QUOTED => Head::Quoted(bytes(input)),
            INTEGER => {
                let zigzag = number(input);
                Head::Integer((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed()))
            }
            INSTANT => Head::Instant(input.signed()),
            NTZ => Head::Ntz(input.signed()),
            _ => Head::Date(input.signed()),
        }
    }
}

fn skip_value(input: &mut Input<'_>) {
    let _ = Head::read(input);
}

fn render_value(input: &mut Input<'_>, out: &mut String) {
    use std::fmt::Write as _;
    let written = match Head::read(input) {
        Head::Bare(bytes) => out.write_str(text(bytes)),
        Head::Quoted(bytes) => write!(out, "\"{}\"", text(bytes)),
        Head::Integer(value) => write!(out, "{value}"),
        Head::Instant(millis) => render_instant(millis, "Z", out),
        Head::Ntz(millis) => render_instant(millis, "", out),
        Head::Date(days) => {
            let date = civil(days);
            write!(
                out,
                "\"{:04}-{:02}-{:02}\"",
                date.year(),
                date.month(),
                date.day()
            )
        }
    };
    debug_assert!(written.is_ok(), "writing to memory");
}

const DAY_MS: i64 = 86_400_000;

fn render_instant(millis: i64, suffix: &str, out: &mut String) -> std::fmt::Result {
    use std::fmt::Write as _;
    let date = civil(millis.div_euclid(DAY_MS));
    let time = millis.rem_euclid(DAY_MS);
    write!(
        out,
        "\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}{suffix}\"",
        date.year(),
        date.month(),
        date.day(),
        time / 3_600_000,
        time / 60_000 % 60,
        time / 1000 % 60,
        time % 1000
    )
}

/// Days since the epoch as a date; only days that [`days`] has made are packed.
fn civil(days: i64) -> NaiveDate {
    chrono::TimeDelta::try_days(days)
        .and_then(|delta| NaiveDate::default().checked_add_signed(delta))
        .unwrap_or_default()
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + u32::from(digit - b'0'))
    })
}

/// An integer that is written as we would write it.
fn integer(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let canonical = match digits {
        [b'0'] => digits.len() == value.len(),
        [b'1'..=b'9', rest @ ..] => rest.len() < 18 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    text(value).parse().ok()
}

/// `yyyy-MM-dd`, days since the epoch.
fn date(value: &[u8]) -> Option<i64> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = value else {
        return None;
    };
    days(&[*y1, *y2, *y3, *y4], &[*m1, *m2], &[*d1, *d2])
}

fn days(year: &[u8], month: &[u8], day: &[u8]) -> Option<i64> {
    let year = i32::try_from(number(year)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(month)?, number(day)?)?;
    Some(date.signed_duration_since(NaiveDate::default()).num_days())
}

/// `yyyy-MM-ddTHH:mm:ss.SSS` and `suffix`, milliseconds since the epoch.
fn instant(value: &[u8], suffix: &[u8]) -> Option<i64> {
    let value = value.strip_suffix(suffix)?;
    let (day, time) = value.split_at_checked(10)?;
    let [b'T', h1, h2, b':', m1, m2, b':', s1, s2, b'.', ms @ ..] = time else {
        return None;
    };
    if ms.len() != 3 {
        return None;
    }
    let days = date(day)?;
    let (hour, minute) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    let (second, milli) = (number(&[*s1, *s2])?, number(ms)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let time = i64::from(((hour * 60 + minute) * 60 + second) * 1000 + milli);
    Some(days * DAY_MS + time)
}

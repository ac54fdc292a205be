//! The part of Python's pickle language that PyTorch writes. It is a program for a small stack machine; here it builds
//! plain data, and a call of a function is kept as a note of what was to be called: nothing is run.
//!
//! candle's reader is not used: it panics on hostile files and takes memory for what they claim.

use std::collections::HashMap;

use super::element::{DAMAGED, Fault};
use super::input::TRUNCATED;

/// What to do about a file that holds more than tensors, or nothing like them.
pub const SAVE: &str = "save its tensors: torch.save(model.state_dict(), path)";

/// The place of a value in its [`Pickle`]. Values refer to each other by place, so that shared and circular ones
/// cost nothing, and dropping them is not recursive.
pub type Id = usize;

/// A value that has been unpickled.
#[derive(Debug)]
pub enum Value {
    Integer(i64),
    Text(String),
    /// A list, a tuple or a set.
    Sequence(Vec<Id>),
    /// A dict, an `OrderedDict` or a `defaultdict`: keys and values in order.
    Dict(Vec<(Id, Id)>),
    /// Something that is imported: `module.name`.
    Global(String),
    /// A call that was not made, or an object that was not built, by what and of what.
    Call(Id, Id),
    /// Something that is kept outside the pickle, by its description.
    Outside(Id),
    /// A value that no tensor needs: none, a truth, a float, bytes.
    Other,
}

/// All values of a pickle.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    top: Id,
}

impl Pickle {
    /// Reads a pickle.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut machine = Machine { rest: bytes, ..Machine::default() };
        let top = machine.run()?;
        Ok(Self { values: machine.values, top })
    }

    /// The most memory that reading a pickle of so many bytes can take.
    pub fn most_bytes(size: u64) -> u128 {
        // A part is a value, its place on the stack and one in the memo; the others are items of lists.
        let (part, item) = (72, 8);
        u128::from(size.min(MOST as u64)) * part + u128::from(size) * item
    }

    /// What was pickled.
    pub fn top(&self) -> Id {
        self.top
    }

    /// The value at that place.
    pub fn get(&self, id: Id) -> &Value {
        self.values.get(id).unwrap_or(&Value::Other)
    }

    /// The text there.
    pub fn text(&self, id: Id) -> Option<&str> {
        if let Value::Text(text) = self.get(id) { Some(text) } else { None }
    }

    /// The name of what is imported there.
    pub fn global(&self, id: Id) -> Option<&str> {
        if let Value::Global(name) = self.get(id) { Some(name) } else { None }
    }

    /// The items of the list or tuple there.
    pub fn sequence(&self, id: Id) -> Option<&[Id]> {
        if let Value::Sequence(items) = self.get(id) { Some(items) } else { None }
    }

    /// The number there, if it is not negative.
    pub fn length(&self, id: Id) -> Option<usize> {
        if let Value::Integer(value) = self.get(id) { usize::try_from(*value).ok() } else { None }
    }

    /// The numbers there, none negative.
    pub fn lengths(&self, id: Id) -> Option<Vec<usize>> {
        self.sequence(id)?.iter().map(|item| self.length(*item)).collect()
    }
}

/// The classes whose objects are dicts.
const DICTS: [&str; 2] = ["collections.OrderedDict", "collections.defaultdict"];

/// More than a checkpoint has of anything: what is read of a byte takes many bytes.
const MOST: usize = 1_000_000;

#[derive(Default)]
struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Where in the stack a group began.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// The values that are the same each time: what no tensor needs, nothing in a tuple, and numbers of a byte.
    shared: HashMap<u16, Id>,
    /// How many values are none of numbers.
    made: usize,
}

impl<'a> Machine<'a> {
    /// Runs to the end. Every instruction takes a byte and makes at most one value.
    fn run(&mut self) -> Result<Id, Fault> {
        loop {
            match self.byte()? {
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'1' => drop(self.group()?),
                // The version of the language, and the length of what follows.
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                code @ (b'q' | b'r' | 0x94 | b'h' | b'j') => self.remember(code)?,
                code @ (b'a' | b'e' | 0x90 | b's' | b'u' | b'b') => self.fill(code)?,
                code => {
                    let value = self.value(code)?;
                    self.push(code, value);
                }
            }
            if [self.stack.len(), self.marks.len(), self.memo.len(), self.made]
                .iter()
                .any(|count| *count > MOST)
            {
                let what = tr!("its pickle is of more than {MOST} parts", MOST);
                return Err(Fault::new(what, SAVE));
            }
        }
    }

    /// The value that an instruction makes.
    fn value(&mut self, code: u8) -> Result<Value, Fault> {
        Ok(match code {
            // None, True, False, a float, and numbers and bytes by their length.
            b'N' | 0x88 | 0x89 => Value::Other,
            b'G' => {
                self.take(8)?;
                Value::Other
            }
            b'C' => self.other(1)?,
            0x8b | b'B' => self.other(4)?,
            0x8e | 0x96 => self.other(8)?,
            b'K' => self.integer(1)?,
            b'M' => self.integer(2)?,
            b'J' => {
                let bytes = self.take(4)?.first_chunk().copied().unwrap_or_default();
                Value::Integer(i32::from_le_bytes(bytes).into())
            }
            0x8a => self.long()?,
            0x8c | b'U' => self.text(1)?,
            b'X' | b'T' => self.text(4)?,
            0x8d => self.text(8)?,
            b']' | b')' | 0x8f => Value::Sequence(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b't' | 0x91 => Value::Sequence(self.group()?),
            0x85..=0x87 => {
                let count = usize::from(code - 0x84);
                let start =
                    self.stack.len().checked_sub(count).filter(|start| *start >= self.floor());
                Value::Sequence(self.stack.split_off(start.ok_or_else(broken)?))
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                Value::Global(format!("{module}.{name}"))
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.values.get(module), self.values.get(name)) {
                    (Some(Value::Text(module)), Some(Value::Text(name)))
                        if name.len() + module.len() < 256 =>
                    {
                        Value::Global(format!("{module}.{name}"))
                    }
                    _ => return Err(broken()),
                }
            }
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(function, arguments)
            }
            0x92 => {
                let (_, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(class, arguments)
            }
            b'Q' => Value::Outside(self.pop()?),
            code => {
                let what = tr!(
                    "its pickle has an instruction, {code}, that PyTorch does not write",
                    code = format!("{code:#04x}")
                );
                return Err(Fault::new(what, DAMAGED));
            }
        })
    }

    fn call(&self, function: Id, arguments: Id) -> Value {
        match self.values.get(function) {
            Some(Value::Global(name)) if DICTS.contains(&name.as_str()) => Value::Dict(Vec::new()),
            _ => Value::Call(function, arguments),
        }
    }

    /// Puts values into the collection below them. What is no collection here does not need them.
    fn fill(&mut self, code: u8) -> Result<(), Fault> {
        let items = match code {
            b'a' | b'b' => vec![self.pop()?],
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![key, value]
            }
            _ => self.group()?,
        };
        let collection = self.stack.last().filter(|_| self.stack.len() > self.floor());
        let collection = collection.and_then(|id| self.values.get_mut(*id)).ok_or_else(broken)?;
        match (code, collection) {
            (b'a' | b'e' | 0x90, Value::Sequence(sequence)) => sequence.extend(items),
            (b's' | b'u', Value::Dict(pairs)) => {
                let (new, rest) = items.as_chunks();
                if !rest.is_empty() {
                    return Err(broken());
                }
                pairs.extend(new.iter().map(|[key, value]| (*key, *value)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes the last value, or brings a noted one back.
    fn remember(&mut self, code: u8) -> Result<(), Fault> {
        let key = match code {
            b'q' | b'h' => self.number(1)?,
            0x94 => self.memo.len() as u64,
            _ => self.number(4)?,
        };
        if matches!(code, b'h' | b'j') {
            let id = *self.memo.get(&key).ok_or_else(broken)?;
            self.stack.push(id);
        } else {
            let id = *self.stack.last().ok_or_else(broken)?;
            self.memo.insert(key, id);
        }
        Ok(())
    }

    fn push(&mut self, code: u8, value: Value) {
        let key = match value {
            Value::Other => Some(u16::MAX),
            Value::Sequence(_) if code == b')' => Some(u16::MAX - 1),
            Value::Integer(number) => u8::try_from(number).ok().map(u16::from),
            _ => None,
        };
        if let Some(id) = key.and_then(|key| self.shared.get(&key)) {
            self.stack.push(*id);
            return;
        }
        let id = self.values.len();
        self.shared.extend(key.map(|key| (key, id)));
        self.made += usize::from(!matches!(value, Value::Integer(_)));
        self.stack.push(id);
        self.values.push(value);
    }

    /// Where the innermost open group begins: what is below is not to be taken.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id, Fault> {
        if self.stack.len() <= self.floor() {
            return Err(broken());
        }
        self.stack.pop().ok_or_else(broken)
    }

    /// Everything above the last mark.
    fn group(&mut self) -> Result<Vec<Id>, Fault> {
        let start = self.marks.pop().ok_or_else(broken)?;
        Ok(self.stack.split_off(start.min(self.stack.len())))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let parts = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) =
            parts.ok_or_else(|| Fault::new(tr!("its pickle ends too early"), TRUNCATED))?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned number of `size` bytes, at most 8.
    fn number(&mut self, size: u64) -> Result<u64, Fault> {
        Ok(self.take(size)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn integer(&mut self, size: u64) -> Result<Value, Fault> {
        Ok(i64::try_from(self.number(size)?).map_or(Value::Other, Value::Integer))
    }

    /// A number of any size; beyond 64 bits it is no length of anything.
    fn long(&mut self) -> Result<Value, Fault> {
        let length = self.number(1)?;
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|byte| *byte > 0x7f);
        let mut padded = [if negative { 0xff } else { 0 }; 8];
        let Some(start) = padded.get_mut(..bytes.len()) else { return Ok(Value::Other) };
        start.copy_from_slice(bytes);
        Ok(Value::Integer(i64::from_le_bytes(padded)))
    }

    /// Passes over bytes behind their length, which is a number of `size` bytes.
    fn other(&mut self, size: u64) -> Result<Value, Fault> {
        let length = self.number(size)?;
        self.take(length)?;
        Ok(Value::Other)
    }

    fn text(&mut self, size: u64) -> Result<Value, Fault> {
        let length = self.number(size)?;
        Ok(Value::Text(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    fn line(&mut self) -> Result<String, Fault> {
        let end = self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len());
        let line = String::from_utf8_lossy(self.take(end as u64)?).into_owned();
        self.take(1)?;
        Ok(line)
    }
}

fn broken() -> Fault {
    Fault::new(tr!("its pickle is broken"), DAMAGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Pickle {
        Pickle::read(bytes).expect("reads")
    }

    #[test]
    fn numbers_of_every_width_are_read() {
        // pickle.dumps((255, 65535, -2, 2**40, -2**40, 2**70), protocol=4)
        let bytes = b"\x80\x04\x95\x2a\0\0\0\0\0\0\0(K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01\x8a\x06\0\0\0\0\0\xff\x8a\x09\0\0\0\0\0\0\0\0\x40t\x94.";
        let pickle = read(bytes);
        let items = pickle.sequence(pickle.top()).expect("a tuple");
        let numbers: Vec<Option<i64>> = items
            .iter()
            .map(|id| if let Value::Integer(value) = pickle.get(*id) { Some(*value) } else { None })
            .collect();
        let (great, small) = (1 << 40, -(1 << 40));
        assert_eq!(numbers, [Some(255), Some(65535), Some(-2), Some(great), Some(small), None]);
    }

    #[test]
    fn circular_and_deep_values_are_read_and_dropped() {
        // A list that holds itself.
        let pickle = read(b"\x80\x02]q\0h\0a.");
        assert_eq!(pickle.sequence(pickle.top()), Some([pickle.top()].as_slice()));
        let mut deep = vec![b')'];
        deep.resize(1_000_000, 0x85);
        deep.push(b'.');
        drop(read(&deep));
    }

    /// What lies below a mark is not of its group, and is there when the group has been closed.
    #[test]
    fn marks_hold_groups_apart() {
        // (7, (1, (2, 3, 4, 5), 6, 8)), and a group that is thrown away.
        let pickle = read(b"\x80\x02K\x07(K\x01(K\x02K\x03K\x04K\x05t(K\x091K\x06K\x08t\x86.");
        let numbers = |id: Id| pickle.sequence(id).expect("a tuple").to_vec();
        let lengths =
            |ids: &[Id]| ids.iter().map(|id| pickle.length(*id)).collect::<Vec<Option<usize>>>();
        let outer = numbers(pickle.top());
        let middle = numbers(outer[1]);
        let inner = numbers(middle[1]);
        assert_eq!(lengths(&outer), [Some(7), None]);
        assert_eq!(lengths(&middle), [Some(1), None, Some(6), Some(8)]);
        assert_eq!(lengths(&inner), [Some(2), Some(3), Some(4), Some(5)]);
        for bytes in [
            // A tuple of two, an item of a list and a call, all from below a mark.
            b"K\x01K\x02(\x86.".as_slice(),
            b"](K\x01a.",
            b"cos\nsystem\n)(R.",
        ] {
            assert_eq!(Pickle::read(bytes).expect_err("refused").what, "its pickle is broken");
        }
    }

    #[test]
    fn broken_pickles_are_refused() {
        for (bytes, reason) in [
            (b"".as_slice(), "its pickle ends too early"),
            (b"X\xff\xff\xff\xffab.", "its pickle ends too early"),
            (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "its pickle ends too early"),
            (b"c os\nsystem", "its pickle ends too early"),
            (b".", "its pickle is broken"),
            (b"t.", "its pickle is broken"),
            (b"N(R.", "its pickle is broken"),
            (b"h\0.", "its pickle is broken"),
            (b"K\x01\x86.", "its pickle is broken"),
            (b"}(Nu.", "its pickle is broken"),
            (b"i.", "its pickle has an instruction, 0x69, that PyTorch does not write"),
        ] {
            assert_eq!(Pickle::read(bytes).expect_err("refused").what, reason, "{bytes:?}");
        }
    }

    #[test]
    fn a_call_is_only_noted() {
        // os.system("true")
        let pickle = read(b"cos\nsystem\nU\x04true\x85R.");
        let Value::Call(function, _) = pickle.get(pickle.top()) else { panic!("a call") };
        assert_eq!(pickle.global(*function), Some("os.system"));
    }
}

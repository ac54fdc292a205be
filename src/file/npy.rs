//! numpy's npy format: a header that is a Python dict, and the elements.
//!
//! The header is parsed here: npyz takes memory for as many bytes as a header says that it has, up to 4 GiB.

use std::io::{self, Read};

use candle_core::{DType, Tensor};

use super::bundle::{Bundle, Info, Tensors};
use super::element::{DAMAGED, Element, Fault, Unread, byte_length, gather, row_major};
use super::input::{Input, NAMED_WRONGLY, TRUNCATED};
use base::error::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// numpy itself reads no header beyond 10,000 bytes.
const MAX_HEADER: usize = 65_536;

/// What an array's header says.
pub struct Header {
    /// The type of the elements, or what is wrong with it.
    pub element: Result<&'static Element, Fault>,
    /// The characters of a single text.
    pub text: Option<usize>,
    big_endian: bool,
    fortran: bool,
    pub shape: Vec<usize>,
    /// The bytes before the data.
    pub length: u64,
}

impl Header {
    fn of(descr: &str, fortran: bool, shape: Vec<usize>) -> Self {
        let characters = descr.get(1..).and_then(|kind| kind.strip_prefix('U')?.parse().ok());
        Self {
            element: element(descr),
            text: characters.filter(|_| shape.is_empty()),
            big_endian: descr.starts_with('>'),
            fortran,
            shape,
            length: 0,
        }
    }

    /// Reads the header that `reader` begins with.
    pub fn read(reader: &mut dyn Read) -> Result<Self, Fault> {
        let mut start = [0; 8];
        if !filled(reader, &mut start)? || !start.starts_with(MAGIC) {
            let what = tr!("is not an npy array, though its name says so");
            return Err(Fault::new(what, NAMED_WRONGLY));
        }
        let mut size = [0; 4];
        let length_bytes = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => {
                let what = tr!("is an npy array of version {version}", version);
                return Err(Fault::new(what, tr!("save it with a recent NumPy: np.save")));
            }
        };
        let truncated = || Fault::new(tr!("ends in its header"), TRUNCATED);
        if !filled(reader, &mut size[..length_bytes])? {
            return Err(truncated());
        }
        let size = usize::try_from(u32::from_le_bytes(size)).unwrap_or(usize::MAX);
        if size > MAX_HEADER {
            let what = tr!("its header says that it is {size} bytes long", size);
            return Err(Fault::new(what, DAMAGED));
        }
        let mut text = vec![0; size];
        if !filled(reader, &mut text)? {
            return Err(truncated());
        }
        let text = String::from_utf8_lossy(&text);
        let mut header = parse(&text).ok_or_else(|| {
            let what =
                tr!("its header {text} is not understood", text = format!("{:?}", text.trim_end()));
            Fault::new(what, DAMAGED)
        })?;
        header.length = (8 + length_bytes + size) as u64;
        Ok(header)
    }

    /// The bytes of the data; of a type that cannot be read, none are counted.
    pub fn data_length(&self) -> Result<u64, Fault> {
        let Ok(element) = &self.element else { return Ok(0) };
        let length = byte_length(&self.shape, element.size()).map(|length| length as u64);
        length.ok_or_else(|| {
            Fault::new(
                tr!("its shape {shape} is beyond any memory", shape = format!("{:?}", self.shape)),
                DAMAGED,
            )
        })
    }

    /// The data as a tensor.
    pub fn tensor(&self, data: &mut dyn Read) -> Result<Tensor, Unread> {
        let element = self.element.clone()?;
        if !self.fortran || self.shape.len() < 2 {
            return element.read(data, self.big_endian, &self.shape);
        }
        let mut bytes = Vec::new();
        data.read_to_end(&mut bytes)?;
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let mut strides = row_major(&reversed);
        strides.reverse();
        let gathered = gather(&bytes, element.size(), &self.shape, &strides);
        let bytes = gathered.ok_or_else(|| Fault::new(tr!("its data is short"), TRUNCATED))?;
        Ok(element.tensor(bytes, self.big_endian, &self.shape)?)
    }

    /// The data, four bytes a character, as text. numpy fills it up with zeros.
    pub fn decode_text(&self, bytes: &[u8]) -> Option<String> {
        let (characters, _) = bytes.as_chunks();
        let read = if self.big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let text: Option<String> =
            characters.iter().map(|character| char::from_u32(read(*character))).collect();
        text.map(|text| text.trim_end_matches('\0').to_owned())
    }

    /// What is known of the array before it is read.
    pub fn info(&self, name: String) -> Info {
        let dtype = self.element.as_ref().map_or(DType::F32, |element| element.read_as());
        Info::unlabelled(name, dtype, self.shape.clone())
    }
}

/// Whether there was enough to fill the buffer.
fn filled(reader: &mut dyn Read, buffer: &mut [u8]) -> Result<bool, Fault> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Fault::new(tr!("cannot be read: {error}", error), DAMAGED)),
    }
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
fn parse(text: &str) -> Option<Header> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    while !rest.is_empty() {
        let (key, behind) = quoted(rest)?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        let behind = match key {
            // Refused, whatever else it says.
            "descr" if value.starts_with('[') => return Some(Header::of("[", false, Vec::new())),
            "descr" => {
                let (value, behind) = quoted(value)?;
                descr = Some(value);
                behind
            }
            "fortran_order" => {
                let truth = value.starts_with("True");
                fortran = Some(truth);
                value.strip_prefix(if truth { "True" } else { "False" })?
            }
            "shape" => {
                let (inner, behind) = value.strip_prefix('(')?.split_once(')')?;
                let lengths = inner.split(',').map(str::trim).filter(|length| !length.is_empty());
                // Python 2 wrote a long as 3L.
                let length = |text: &str| text.trim_end_matches('L').parse().ok();
                shape = Some(lengths.map(length).collect::<Option<Vec<usize>>>()?);
                behind
            }
            _ => return None,
        };
        rest = behind.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some(Header::of(descr?, fortran?, shape?))
}

/// A text in single or double quotes, without escapes, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    text.get(1..)?.split_once(quote)
}

fn element(descr: &str) -> Result<&'static Element, Fault> {
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    let fix =
        tr!("save it as floats, integers or booleans: np.save(path, array.astype(np.float32))");
    let refuse = |what: &str| Err(Fault::new(tr!("is {what} ({descr})", what, descr), fix));
    if let Some(element) = Element::of_numpy(if kind == "?" { "b1" } else { kind }) {
        return Ok(element);
    }
    if descr.starts_with('[') {
        return Err(Fault::new(
            tr!("is a structured array"),
            tr!("save each of its fields by itself"),
        ));
    }
    match kind.chars().next() {
        Some('O') => Err(Fault::new(tr!("is an array of Python objects, stored as a pickle"), fix)),
        Some('c') => {
            let fix = tr!("save its real and its imaginary part apart");
            Err(Fault::new(tr!("is an array of complex numbers ({descr})", descr), fix))
        }
        Some('U' | 'S') => refuse("an array of text"),
        Some('M' | 'm') => refuse("an array of times"),
        _ => refuse("of a type that is not known here"),
    }
}

/// A file of one array.
struct Npy {
    input: Input,
    header: Header,
}

impl Tensors for Npy {
    fn read(&self, _: usize) -> Result<Tensor> {
        let fail = |fault: Fault| fault.of(self.input.path(), "");
        let length = self.header.data_length().map_err(fail)?;
        let read = |bytes: &mut dyn Read| self.header.tensor(bytes);
        let tensor = self.input.stretch(self.header.length, length, read);
        tensor.map_err(|unread| unread.of(self.input.path(), ""))
    }
}

/// Opens an npy file: one tensor, without a name.
pub fn open(mut input: Input) -> Result<Bundle> {
    let path = &input.path().to_owned();
    let header = Header::read(&mut input).map_err(|fault| fault.of(path, ""))?;
    if let Err(fault) = &header.element {
        return Err(fault.clone().of(path, ""));
    }
    let needed = header.data_length().map_err(|fault| fault.of(path, ""))?;
    let there = input.length().saturating_sub(header.length);
    if needed != there {
        let what =
            tr!("its header says {needed} bytes of data, and it holds {there}", needed, there);
        let fix = if there < needed { TRUNCATED } else { tr!("save one array to a file") };
        return Err(Error::file(path, what, fix));
    }
    let infos = vec![header.info(String::new())];
    Ok(Bundle::new(path, None, infos, Box::new(Npy { input, header })))
}

/// The header, of version 1, of an array in row-major order. Data begins at a multiple of 64, as numpy has it.
pub fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let lengths: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // A tuple of one keeps its comma.
    let lengths = lengths.join(", ") + if shape.len() == 1 { "," } else { "" };
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let before = MAGIC.len() + 4;
    let padded = (before + text.len() + 1).next_multiple_of(64);
    text.push_str(&" ".repeat(padded - before - text.len() - 1));
    text.push('\n');
    // At most 32 axes of 20 digits.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [MAGIC.as_slice(), &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::Dtype;

    #[test]
    fn a_written_header_reads_back() {
        for shape in [vec![], vec![3], vec![2, 0, 5]] {
            let bytes = header("<f8", &shape);
            assert_eq!(bytes.len() % 64, 0);
            let read = Header::read(&mut bytes.as_slice()).expect("reads");
            assert_eq!(read.element.expect("known").dtype, Dtype::F64);
            assert_eq!((read.shape, read.length), (shape, bytes.len() as u64));
        }
    }

    /// As `np.save` writes arrays of these shapes, byte by byte: (3) without its comma would be a number in Python.
    #[test]
    fn headers_are_written_as_numpy_does() {
        for (shape, said) in [
            (vec![], "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"),
            (vec![3], "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"),
            (vec![2, 0, 5], "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 0, 5), }"),
        ] {
            let expected = format!("{said:<117}\n");
            let expected = [b"\x93NUMPY\x01\0v\0", expected.as_bytes()].concat();
            assert_eq!(header("<f8", &shape), expected, "{shape:?}");
        }
    }

    #[test]
    fn headers_as_numpy_has_written_them_are_understood() {
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
            "{\"shape\": (2L,3L), \"fortran_order\": False, \"descr\": \"<f4\"}",
        ] {
            assert_eq!(parse(text).expect("parses").shape, [2, 3], "{text}");
        }
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3}",
            "{'descr': 'é', 'fortran_order': True, 'shape': (3)",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}

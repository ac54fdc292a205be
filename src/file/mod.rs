//! Recorded traces as files, written and read without loss: one format, one file, and one table of formats.

mod archive;
mod array;
mod bare_words;
mod bundle;
mod element;
mod format;
mod index;
mod input;
mod json;
mod npy;
mod npz;
mod number;
mod output;
mod pickle;
mod place;
mod record;
mod safetensors;
mod text;
mod torch;

pub use bundle::{Bundle, Info};
pub use format::read_config;
pub use json::{read_json, write as write_json};
pub use number::{json_number, shortest};
pub use output::Output;
pub use place::{one_tensor, read_place, recorded_in, split_place};
pub use record::{Entry, Record, dtype_name};

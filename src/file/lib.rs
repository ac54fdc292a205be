//! Recorded traces as files, written and read without loss: one format, one file, and one table of formats.

#[macro_use]
extern crate base;

mod archive;
mod array;
mod at;
mod bare_words;
mod bundle;
mod element;
mod format;
mod gguf;
mod growing;
mod index;
mod input;
mod joined;
mod json;
mod json_step;
mod json_write;
mod npy;
mod npz;
mod number;
mod output;
mod pickle;
mod place;
mod record;
mod safetensors;
mod setting_text;
mod staged;
mod text;
mod torch;

pub use at::InFile;
pub use bundle::{Bundle, Info};
pub use format::{Page, read_config};
pub use growing::Growing;
pub use input::REASONS;
pub use input::{io_reason, is_unread};
pub use joined::{Join, Piece};
pub use json::read_json;
pub use json_write::write as write_json;
pub use number::{json_number, shortest};
pub use output::Output;
pub use place::{Recording, open_ranks};
pub use place::{one_tensor, open_place, read_place, recorded_in, split_path, split_place};
pub use record::dtype_name;
pub use record::{Entry, Record};
pub use staged::undisturbed;

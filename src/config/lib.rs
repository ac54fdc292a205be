//! What is to be computed: settings as people give them, and the config they resolve to.

#[macro_use]
extern crate base;

mod check;
mod choice;
mod config;
mod divisors;
mod labels;
mod loss;
mod parts;
mod positions;
mod preset;
mod queries;
mod resolve;
mod rotary;
mod rows;
mod scores;
mod segments;
mod setting;
mod settings;
mod sizes;
mod text;
mod tiles;
mod tokens;

pub use choice::{
    AttnMaskTrue, CausalAlign, DType, DrawInputs, End, Feature, Gate, Init, Input, Mask, NormOver,
    OtherNorm, Packing, PositionTerm, Preset, QkNorm, QkvFormat, Recurrence, Seed, Start, TorchCpu,
};
pub use config::Config;
pub use divisors::split;
pub use labels::Labels;
pub use loss::OutputGradient;
pub use parts::{Masks, Norm, Packed};
pub use positions::Positions;
pub use queries::Queries;
pub use rotary::Rotary;
pub use scores::Scores;
pub use segments::{Segments, chunks};
pub use settings::{Plain, Setting, Settings};
pub use sizes::{DEFAULT_HEADS, Latent, RelativePositions, Sizes};
pub use text::Place;
pub use tokens::Tokens;

pub use program::{
    AlibiForm, EmptyRow, Fill, Pairing, QueryRows, RelativeBias, RopeScaling, SectionOrder,
    Selection, Shift,
};

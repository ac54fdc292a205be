//! The operations, one file per family.

mod bias;
mod fill;
mod frequencies;
mod functions;
mod heads;
mod linear;
mod mask;
mod other_keys;
mod precision;
mod rotary;
mod scaling;
mod slip;
mod turn;
mod weights;

pub use bias::{Biasing, alibi_slopes};
pub use fill::Fill;
pub use frequencies::{Frequencies, Llama3, RopeScaling, Yarn};
pub use functions::{Map, Norm, Weigh};
pub use heads::{Heads, Rearrange};
pub use linear::{Linear, QueryRows};
pub use mask::{Blocked, BlockedKeys, ByPosition, Hides, Masking};
pub use precision::Precision;
pub use rotary::{Pairing, Rotary, Rotate};
pub use scaling::Scaling;
pub use slip::{Block, Slip};
pub use turn::{Stage, Turn};
pub use weights::{EmptyRow, KeepSome, Weighting, dropout_scale};

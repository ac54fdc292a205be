//! The operations, one file per family.

mod bias;
mod fill;
mod frequencies;
mod heads;
mod linear;
mod mask;
mod rotary;
mod scaling;
mod weights;

pub use bias::{Biasing, alibi_slopes};
pub use fill::Fill;
pub use frequencies::{Frequencies, Llama3, RopeScaling, Yarn};
pub use heads::{Heads, Rearrange};
pub use linear::{Linear, QueryRows};
pub use mask::{Blocked, BlockedKeys, ByPosition, Hides, Masking};
pub use rotary::{Pairing, Rotary, Rotate};
pub use scaling::Scaling;
pub use weights::{EmptyRow, KeepSome, Weighting, dropout_scale};

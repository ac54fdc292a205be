//! The operations, one file per family.

mod along;
mod bias;
mod documents;
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
mod score_slips;
mod slip;
mod stream;
mod turn;
mod weights;

pub use along::Along;
pub use bias::{Biasing, Distance, alibi_slopes};
pub use documents::Documents;
pub use fill::Fill;
pub use frequencies::{Frequencies, Llama3, RopeScaling, Yarn};
pub use functions::{Map, Norm, Running, Squares, Weigh};
pub use heads::{Heads, Rearrange};
pub use linear::{Linear, QueryRows};
pub use mask::{Blocked, BlockedKeys, ByPosition, Hides, Masking, Shift};
pub use precision::Precision;
pub use rotary::{Pairing, Rotary, Rotate};
pub use scaling::Scaling;
pub use score_slips::{Cells, ScoreSlip, SinkSlip};
pub use slip::{Block, Slip};
pub use stream::{Stream, StreamSlip};
pub use turn::{Stage, Turn};
pub use weights::{EmptyRow, KeepSome, Weighting, dropout_scale};

//! Other people's files: the names of their tensors, the layouts of their weights, the orders of their axes, the
//! configs of their models.

#[macro_use]
extern crate base;

mod arguments;
mod arranged;
mod axis_order;
mod beside;
mod chosen;
mod chosen_blocks;
mod chunks;
mod codes;
mod contradiction;
mod delta;
mod delta_tensors;
mod evidence;
mod few_bits;
mod found_mask;
mod given_masks;
mod hints;
mod inputs;
mod joined_masks;
mod latent;
mod layer;
mod layout;
mod matched;
mod model;
mod names;
mod numbers;
mod other_keys;
mod packed;
mod pages;
mod partners;
mod parts;
mod qkv;
mod recurrent;
mod rope_tables;
mod scale_axes;
mod selected;
mod smoothed;
mod steps;
mod weight_scales;
mod whole;

pub use arguments::{
    LACKS, LEFT_PADDING, POSITIONS, dropout_of, said_by_config, says_a_setting, take_arguments,
    take_evidence, take_sides,
};
pub use arranged::{Qkv, arranged};
pub use axis_order::AxisOrder;
pub use contradiction::Contradiction;
pub use delta::{DeltaRule, delta_rules};
pub use evidence::{Evidence, precision};
pub use found_mask::{FoundMask, states_items};
pub use given_masks::{
    Caller, either_way, holds_ones, take_bias, take_kept, take_mask, take_slopes,
};
pub use hints::{heads, mask_fill};
pub use inputs::NameMap;
pub use inputs::{Inputs, find_inputs, with_batch};
pub use layout::{has_layer, layers_of, projected, read_weights};
pub use matched::Match;
pub use model::{Known, adds_residual, known, with_model};
pub use names::{
    asked, gradient_of, is_called, is_gradient, last_segment, meanings, take_gradients, unknown,
};
pub use numbers::{are_booleans, listed, numbers};
pub use pages::{Paged, find_pages};
pub use partners::{matched, read_as_logits};
pub use parts::{as_kept, is_of_flashinfer, join_states};
pub use qkv::{find_qkv, unpacked};
pub use recurrent::has_delta_rule;
pub use rope_tables::{Tables, take_tables};
pub use selected::{take_selection, unroll_mask};
pub use smoothed::{not_added, without_scale};
pub use steps::Unmatched;
pub use steps::{FITS, Named, Orders, distance, fitting, name_steps, of_other_shape};
pub use weight_scales::{WeightScales, is_weight_scale};
pub use whole::{Node, Part as ModelPart, is_record, is_weight, nodes, shifted};

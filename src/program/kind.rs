//! Which kinds of edits are there that mistakes amount to?

choices! {
    /// The kinds of edits.
    Kind {
        /// An operation has another number.
        #[default]
        Parameter = "parameter",
        /// A step is left out.
        Omitted = "omitted",
        /// A step is made twice.
        Repeated = "repeated",
        /// Two steps are made in the other order.
        Moved = "moved",
        /// A step is made that does not belong there.
        Inserted = "inserted",
        /// Another operation stands in a step's place.
        Replaced = "replaced",
        /// A step reads another tensor.
        Input = "input",
        /// Axes are confused: numbers stand in other places, or are added up along another axis.
        Axes = "axes",
        /// Other cells are blocked, or in another way.
        Mask = "mask",
        /// A step is computed in fewer bits.
        Precision = "precision",
        /// Numbers are left out at random.
        Random = "random",
    }
}

impl Kind {
    /// What such a mistake is, with an example.
    pub fn example(self) -> &'static str {
        match self {
            Self::Parameter => tr!("another number: scale is 0.17678 where 0.35355 was meant"),
            Self::Omitted => tr!("a step left out: the norm of the keys, a bias, the sinks"),
            Self::Repeated => {
                tr!("a step applied twice: softmax of the weights, a bias added twice")
            }
            Self::Moved => tr!("two steps in the other order: the rotation before the norm"),
            Self::Inserted => tr!("a step that does not belong: GELU on the values, a residual"),
            Self::Replaced => {
                tr!("another operation: softmax in base 2, LayerNorm for the RMS norm")
            }
            Self::Input => tr!("the wrong tensor is read: the keys' bias in place of the values'"),
            Self::Axes => {
                tr!("numbers in other places: heads reversed, a view instead of a transpose")
            }
            Self::Mask => tr!("other cells blocked: the mask transposed, a window on both sides"),
            Self::Precision => {
                tr!("fewer bits: products in TF32, softmax in bf16, a rounded cache")
            }
            Self::Random => tr!("numbers left out at random: dropout on the values"),
        }
    }
}

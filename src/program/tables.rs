//! Enums of which there is a row to know of each variant.

/// An enum, the list of its variants, and the row of each.
macro_rules! table {
    ($(#[$about:meta])* $name:ident: $row:ty { $($(#[$own:meta])* $variant:ident => $value:expr,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$own])* $variant),+ }

        impl $name {
            /// Every one.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            #[allow(clippy::match_same_arms, reason = "a row of each")]
            fn row(self) -> $row {
                match self { $(Self::$variant => $value),+ }
            }
        }
    };
}

/// Such an enum whose rows are clauses that tell the variants.
macro_rules! clauses {
    ($(#[$about:meta])* $name:ident { $($rows:tt)+ }) => {
        table! {
            $(#[$about])*
            $name: &'static str { $($rows)+ }
        }

        impl $name {
            /// A clause that tells it.
            pub fn told(self) -> &'static str {
                base::lang::text(self.row())
            }
        }
    };
}

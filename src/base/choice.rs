//! Which words can a setting or parameter be, and how are they read and shown?

/// An enum of such words, with their names, and how it is read and shown.
#[macro_export]
macro_rules! choices {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$variant_about])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every choice.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The names of all choices.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name that flags and configs use.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|choice| choice.name() == text);
                found.copied().ok_or_else(|| $crate::tr!("`{text}` is not one of {names}", text, names = $crate::lang::list(&Self::NAMES)))
            }
        }
    };
}

//! Labels with a bounded set of values.

use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Value of a label, one of a few.
pub trait LabelValue: EncodeLabelValue + Copy + Debug + Eq + Hash + Send + Sync + 'static {
    /// The label.
    const LABEL: &'static str;

    /// All values.
    const ALL: &'static [Self];
}

/// Counter for each value of a label; clones share it.
#[derive(Clone, Debug)]
pub struct LabeledCounter<V: LabelValue>(Family<[(&'static str, V); 1], Counter>);

/// Declares the values of a label, and the text of each.
#[macro_export]
macro_rules! label_values {
    (
        $(#[$of_enum:meta])*
        $visibility:vis enum $name:ident as $label:literal {
            $($(#[$of_value:meta])* $value:ident = $text:literal,)*
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $($(#[$of_value])* $value,)*
        }

        impl $crate::metrics::LabelValue for $name {
            const LABEL: &'static str = $label;
            const ALL: &'static [Self] = &[$(Self::$value,)*];
        }

        impl prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                match self {
                    $(Self::$value => $text,)*
                }
                .encode(encoder)
            }
        }
    };
}

// === impl LabeledCounter ===

impl<V: LabelValue> LabeledCounter<V> {
    /// Registers the counter called `name`. All values are shown as zero from the start, so that the
    /// first count is seen as a rise.
    pub fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let counter = Self::default();
        registry.register(name, help, counter.0.clone());
        for value in V::ALL {
            counter.count(*value, 0);
        }
        counter
    }

    /// Counts `more` of `value`.
    pub fn count(&self, value: V, more: usize) {
        let counter = self.0.get_or_create(&[(V::LABEL, value)]);
        counter.inc_by(more as u64);
    }
}

impl<V: LabelValue> Default for LabeledCounter<V> {
    /// A counter that is not registered.
    fn default() -> Self {
        Self(Family::default())
    }
}

//! Properties of a stream that Envoy hands to dynamic modules, by the paths that wasm filters have.

use tollgate_filter::{MetadataKind, ROUTE_FIELDS};

use crate::envoy::{MetadataSource, MetadataValue, StreamPtr};
use crate::kinds;

/// Attributes that are texts, each with its number in Envoy's interface.
const ATTRIBUTES: [(&[&str], u32); 13] = [
    (&["request", "path"], 0),
    (&["request", "url_path"], 1),
    (&["request", "host"], 2),
    (&["request", "scheme"], 3),
    (&["request", "method"], 4),
    (&["request", "referer"], 6),
    (&["request", "useragent"], 7),
    (&["request", "id"], 9),
    (&["source", "address"], SOURCE_ADDRESS),
    (&["connection", "requested_server_name"], 30),
    (&["connection", "dns_san_peer_certificate"], 35),
    (&["connection", "uri_san_peer_certificate"], 37),
    (&["xds", "route_name"], 61),
];
const SOURCE_ADDRESS: u32 = 24;

/// The attribute that is a whole number, with its own.
const RESPONSE_CODE: (&[&str], u32) = (&["response", "code"], 15);

/// The namespace of a route's exceptions, which is handed over whole.
const EXCEPTIONS: &[&str] = &["xds", "route_metadata", "filter_metadata", "tollgate"];

/// Place of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    Attribute(u32),
    Number(u32),
    Metadata(MetadataSource, &'a str, &'a str),
    FilterState(&'a str),
    Exceptions,
}

// === impl Place ===

impl<'a> Place<'a> {
    fn of(path: &[&'a str]) -> Option<Self> {
        let attribute = ATTRIBUTES.iter().find(|(known, _)| *known == path);
        if let Some((_, id)) = attribute {
            return Some(Self::Attribute(*id));
        }
        if path == RESPONSE_CODE.0 {
            return Some(Self::Number(RESPONSE_CODE.1));
        }
        match *path {
            ["metadata", "filter_metadata", ns, key] => {
                Some(Self::Metadata(MetadataSource::Dynamic, ns, key))
            }
            ["xds", "route_metadata", "filter_metadata", ns, key] => {
                Some(Self::Metadata(MetadataSource::Route, ns, key))
            }
            ["filter_state", key] => Some(Self::FilterState(key)),
            _ if path == EXCEPTIONS => Some(Self::Exceptions),
            _ => None,
        }
    }
}

// === free functions ===

/// Returns whether Envoy has the property called `path` for dynamic modules.
pub(crate) fn is_known(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    Place::of(&path).is_some()
}

/// Reads a property of `stream`, in the form that wasm filters have it. Metadata is most likely of the
/// kind `likely`.
pub(crate) fn read(stream: StreamPtr, path: &[&str], likely: MetadataKind) -> Option<Vec<u8>> {
    match Place::of(path)? {
        Place::Attribute(id) => stream.attribute(id),
        Place::Number(id) => {
            let number = stream.number_attribute(id)?;
            Some(number.to_le_bytes().to_vec())
        }
        Place::Metadata(source, ns, key) => {
            let place = kinds::place(&(source as u32, ns, key));
            let value = kinds::find(place, likely, |kind| stream.metadata(source, ns, key, kind));
            match value? {
                MetadataValue::Texts(_) => None,
                value => Some(bytes(value)),
            }
        }
        Place::FilterState(key) => stream.filter_state(key),
        Place::Exceptions => exceptions(stream),
    }
}

/// The exceptions of a route in the flat form of maps: counts and lengths as 32-bit little-endian
/// numbers, then names and values with a zero byte after each.
fn exceptions(stream: StreamPtr) -> Option<Vec<u8>> {
    let [.., ns] = EXCEPTIONS else { return None };
    let mut pairs = Vec::new();
    for key in stream.metadata_keys(MetadataSource::Route, ns) {
        let name = core::str::from_utf8(&key.name).ok()?;
        // The values of others are not read.
        let mut fields = ROUTE_FIELDS.iter();
        let field = fields.find(|(field, _)| *field == name);
        let value = field.and_then(|(_, likely)| {
            kinds::find(kinds::place(&key.address), *likely, |kind| {
                stream.metadata(MetadataSource::Route, ns, name, kind)
            })
        });
        let value = value.map(bytes).unwrap_or_default();
        pairs.push((key.name, value));
    }
    (!pairs.is_empty()).then(|| flat(&pairs))
}

/// A value of metadata in the form that wasm filters have it.
fn bytes(value: MetadataValue) -> Vec<u8> {
    match value {
        MetadataValue::Text(text) => text,
        MetadataValue::Number(number) => number.to_le_bytes().to_vec(),
        MetadataValue::Flag(flag) => vec![u8::from(flag)],
        MetadataValue::Texts(texts) => {
            let items: Vec<_> = texts.into_iter().map(|text| (text, Vec::new())).collect();
            flat(&items)
        }
    }
}

fn flat(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = number(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend(number(name.len()));
        bytes.extend(number(value.len()));
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text);
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_if_envoy_hands_it_over() {
        let known = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            is_known(&path)
        };
        for path in [
            "source.address",
            "connection.uri_san_peer_certificate",
            "metadata.filter_metadata.app.plan",
            "xds.route_metadata.filter_metadata.app.plan",
            "xds.route_metadata.filter_metadata.tollgate",
            "filter_state.name",
            "xds.route_name",
        ] {
            assert!(known(path), "{path}");
        }
        for path in [
            "metadata.filter_metadata.app.plan.name",
            "xds.virtual_host_metadata.filter_metadata.app.team",
            "xds.node.id",
        ] {
            assert!(!known(path), "{path}");
        }
    }

    #[test]
    fn maps_are_flat() {
        let pairs = [(b"cost".to_vec(), vec![1, 2]), (b"x".to_vec(), Vec::new())];
        let mut want = vec![2, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        want.extend(b"cost\0\x01\x02\0x\0\0");
        assert_eq!(flat(&pairs), want);
    }
}

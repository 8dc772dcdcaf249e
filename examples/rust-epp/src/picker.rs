//! Which endpoints there are, and which of them gets a request.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use envoy_types::pb::google::protobuf::{Value, value::Kind};

/// Picks endpoints of a file, one `ip:port` a line, in turn.
pub struct Picker {
    file: PathBuf,
    turn: AtomicUsize,
}

impl Picker {
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), turn: AtomicUsize::new(0) }
    }

    /// The endpoints as the file has them now. It is small and is read at each request, so a pick is never out of date.
    pub fn endpoints(&self) -> io::Result<Vec<SocketAddr>> {
        let text = fs::read_to_string(&self.file)?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// The endpoint of a request; `None` if there is none that the subset allows.
    pub fn pick(&self, subset: &Subset) -> Option<SocketAddr> {
        let mut endpoints = self.endpoints().unwrap_or_default();
        endpoints.retain(|endpoint| subset.allows(endpoint));
        if endpoints.is_empty() {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Some(endpoints[turn % endpoints.len()])
    }
}

/// The data plane's restriction of the pick (protocol, "Endpoint Subset").
pub enum Subset {
    /// There is none.
    Any,
    /// One of these, address and port.
    Only(HashSet<SocketAddr>),
}

impl Subset {
    /// Reads the value of the subset hint. One that is no list, and an item that is no endpoint, allow nothing: a
    /// restriction that can't be read must not become no restriction.
    pub fn read(hint: Option<&Value>) -> Self {
        let Some(value) = hint else { return Self::Any };
        let Some(Kind::ListValue(list)) = &value.kind else { return Self::Only(HashSet::new()) };
        let texts = list.values.iter().filter_map(|item| match &item.kind {
            Some(Kind::StringValue(text)) => Some(text),
            _ => None,
        });
        Self::Only(texts.filter_map(|text| text.trim().parse().ok()).collect())
    }

    fn allows(&self, endpoint: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Only(endpoints) => endpoints.contains(endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::google::protobuf::ListValue;

    fn text(text: &str) -> Value {
        Value { kind: Some(Kind::StringValue(text.into())) }
    }

    #[test]
    fn an_item_is_matched_by_address_and_port() {
        let list = ListValue { values: vec![text("10.0.0.1:8000"), text("[2001:db8::1]:8000")] };
        let subset = Subset::read(Some(&Value { kind: Some(Kind::ListValue(list)) }));
        assert!(subset.allows(&"10.0.0.1:8000".parse().unwrap()));
        assert!(subset.allows(&"[2001:db8:0::1]:8000".parse().unwrap()));
        assert!(!subset.allows(&"10.0.0.1:8001".parse().unwrap()));
    }

    #[test]
    fn what_is_no_list_allows_nothing() {
        let endpoint = "10.0.0.1:8000".parse().unwrap();
        assert!(Subset::read(None).allows(&endpoint));
        assert!(!Subset::read(Some(&text("10.0.0.1:8000"))).allows(&endpoint));
        assert!(!Subset::read(Some(&Value { kind: None })).allows(&endpoint));
    }
}

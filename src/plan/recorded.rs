//! Snapshots as the debug log records them, for tests.

use serde::{Serialize, de::DeserializeOwned};

/// Returns the snapshot that is decoded from the record of `observed`.
pub(crate) fn recorded<O: Serialize + DeserializeOwned>(observed: &O) -> O {
    serde_json::from_str(&serde_json::to_string(observed).unwrap()).unwrap()
}

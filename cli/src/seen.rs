//! Result of a read with the rights of a user. An object that could not be seen is not absent.

use std::{fmt::Debug, future::Future, time::Duration};

use kube::{Api, Resource, api::ListParams, core::Status};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Time after which a read counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(10);

/// An object or a list, or why it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen<T> {
    /// It exists.
    Found(T),
    /// It does not exist.
    Absent,
    /// The API server does not serve its kind.
    Unserved,
    /// The caller may not read it. The API server's message.
    Denied(String),
    /// The API server does not answer, or not usably.
    Unanswered(String),
    /// It was not asked for, for this reason.
    NotAsked(String),
    /// It was not asked for, because nothing told where it is.
    #[default]
    Unknown,
}

impl<T> Seen<T> {
    /// Returns the object if it exists.
    pub fn found(&self) -> Option<&T> {
        if let Self::Found(found) = self { Some(found) } else { None }
    }

    /// True if it certainly does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent | Self::Unserved)
    }

    /// Converts the object.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Found(found) => Seen::Found(convert(found)),
            Self::Absent => Seen::Absent,
            Self::Unserved => Seen::Unserved,
            Self::Denied(why) => Seen::Denied(why),
            Self::Unanswered(why) => Seen::Unanswered(why),
            Self::NotAsked(why) => Seen::NotAsked(why),
            Self::Unknown => Seen::Unknown,
        }
    }

    /// Returns why the object is not visible. `None` if it was seen, or certainly does not exist.
    pub fn hidden(&self) -> Option<String> {
        match self {
            Self::Found(_) | Self::Absent | Self::Unserved => None,
            Self::Denied(why) => Some(format!("not visible with your rights: {why}")),
            Self::Unanswered(why) => Some(format!("no answer: {why}")),
            Self::NotAsked(why) => Some(why.clone()),
            Self::Unknown => Some("not known".to_owned()),
        }
    }

    fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                if names_an_object(&status) {
                    Self::Absent
                } else {
                    Self::Unserved
                }
            }
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => Self::Denied(status.message.clone()),
            error => Self::Unanswered(words(&error)),
        }
    }
}

/// True if a 404 is about an object, and not about a kind that the API server does not serve.
fn names_an_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Returns an error in one line, with its cause.
pub fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text.replace('\n', " ")
}

/// Waits for an answer, for a limited time.
pub async fn patiently<T>(read: impl Future<Output = Result<T, kube::Error>>) -> Seen<T> {
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(found)) => Seen::Found(found),
        Ok(Err(error)) => Seen::of(error),
        Err(_) => Seen::Unanswered(format!("not within {} s", PATIENCE.as_secs())),
    }
}

/// Reads one object.
pub async fn get<K>(api: &Api<K>, name: &str) -> Seen<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    patiently(api.get(name)).await
}

/// Reads the metadata of one object. The content of a ConfigMap or Secret is not read.
pub async fn get_metadata<K>(api: &Api<K>, name: &str) -> Seen<kube::core::ObjectMeta>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    K::DynamicType: Default,
{
    patiently(api.get_metadata(name)).await.map(|object| object.metadata)
}

/// Lists objects.
pub async fn list<K>(api: &Api<K>, labels: Option<&str>) -> Seen<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = labels.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels));
    patiently(api.list(&params)).await.map(|list| list.items)
}

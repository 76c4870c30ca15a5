//! Lists of objects that are not watched. They are read page by page, and only one page is in memory at a time.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Resource,
    api::{DynamicObject, ListParams, ObjectList},
};
use serde::de::DeserializeOwned;

use super::{
    Error,
    apply::api_resource,
    clients::Connection,
    watch::{Metadata, PAGE_SIZE},
};
use crate::plan::Kind;

/// Longest wait for one page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls `see` with every object of a kind on a control plane.
///
/// # Errors
/// If a page cannot be read. `see` has been called with the pages before it.
pub async fn objects<K>(
    connection: &Connection,
    plane: &str,
    params: ListParams,
    see: impl FnMut(K),
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let what = || format!("list {} in {plane}", K::plural(&()));
    pages(connection, what, LIST_TIMEOUT, params, |params| page(Api::<K>::all(connection.client()), params), see).await
}

/// Calls `see` with the metadata of every object of a kind on a control plane, without `managedFields`.
///
/// # Errors
/// Same as [`objects`].
pub async fn metadata(
    connection: &Connection,
    plane: &str,
    kind: Kind,
    params: ListParams,
    mut see: impl FnMut(Metadata),
) -> Result<(), Error> {
    let resource = api_resource(kind);
    let api = || Api::<DynamicObject>::all_with(connection.client(), &resource);
    let what = || format!("list {} in {plane}", resource.plural);
    pages(
        connection,
        what,
        LIST_TIMEOUT,
        params,
        |params| page_of_metadata(api(), params),
        |mut object: Metadata| {
            object.metadata.managed_fields = None;
            see(object);
        },
    )
    .await
}

/// Reads one page of a list.
pub(super) async fn page<K>(api: Api<K>, params: ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.list(&params).await
}

/// Reads one page of a list, only the metadata of each object.
pub(super) async fn page_of_metadata(
    api: Api<DynamicObject>,
    params: ListParams,
) -> kube::Result<ObjectList<Metadata>> {
    api.list_metadata(&params).await
}

/// Calls `see` with every object of a list. `within`: longest wait for one page.
pub(super) async fn pages<T: Clone, F: Future<Output = kube::Result<ObjectList<T>>>>(
    connection: &Connection,
    what: impl Fn() -> String,
    within: Duration,
    params: ListParams,
    page: impl Fn(ListParams) -> F,
    mut see: impl FnMut(T),
) -> Result<(), Error> {
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let list = connection.within(within, &what, page(params.clone())).await?;
        list.items.into_iter().for_each(&mut see);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
    use kube::core::TypeMeta;

    use super::*;

    fn page(items: &[u8], next: Option<&str>) -> ObjectList<u8> {
        let metadata = ListMeta { continue_: next.map(str::to_owned), ..ListMeta::default() };
        ObjectList { types: TypeMeta::default(), metadata, items: items.to_vec() }
    }

    #[tokio::test]
    async fn list_of_several_pages_is_read_once_and_in_order() {
        let asked = Mutex::new(Vec::new());
        let mut seen = Vec::new();
        let serve = |params: ListParams| {
            let token = params.continue_token.clone();
            asked.lock().unwrap().push(token.clone());
            std::future::ready(Ok(match token.as_deref() {
                None => page(&[1, 2], Some("more")),
                Some("more") => page(&[3], Some("")),
                other => panic!("{other:?}"),
            }))
        };
        let connection = Connection::new(kube::Config::new("http://localhost:1".parse().unwrap())).unwrap();
        pages(&connection, || "list".into(), LIST_TIMEOUT, ListParams::default(), serve, |item| seen.push(item))
            .await
            .unwrap();
        assert_eq!((seen, asked.into_inner().unwrap()), (vec![1, 2, 3], vec![None, Some("more".to_owned())]));
    }
}

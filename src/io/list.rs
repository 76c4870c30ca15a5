//! Lists of what is not watched, page by page: no more than one page is held at a time.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, ObjectList},
};
use serde::de::DeserializeOwned;

use super::{
    Error,
    apply::api_resource,
    deadline,
    watch::{Metadata, PAGE_SIZE},
};
use crate::plan::Kind;

/// Longest wait for one page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Shows every object of a kind on a control plane to `see`.
///
/// # Errors
/// When a page does not come; `see` has had those before it.
pub async fn objects<K>(client: &Client, plane: &str, params: ListParams, see: impl FnMut(K)) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let what = || format!("list {} in {plane}", K::plural(&()));
    pages(what, params, async |params| api.list(&params).await, see).await
}

/// Shows the metadata of every object of a kind on a control plane to `see`, without its record of managers.
///
/// # Errors
/// As [`objects`].
pub async fn metadata(
    client: &Client,
    plane: &str,
    kind: Kind,
    params: ListParams,
    mut see: impl FnMut(Metadata),
) -> Result<(), Error> {
    let resource = api_resource(kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let what = || format!("list {} in {plane}", resource.plural);
    let page = async |params| api.list_metadata(&params).await;
    pages(what, params, page, |mut object: Metadata| {
        object.metadata.managed_fields = None;
        see(object);
    })
    .await
}

async fn pages<T: Clone>(
    what: impl Fn() -> String,
    params: ListParams,
    page: impl AsyncFn(ListParams) -> kube::Result<ObjectList<T>>,
    mut see: impl FnMut(T),
) -> Result<(), Error> {
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let list = deadline(LIST_TIMEOUT, &what, page(params.clone())).await?;
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
    async fn every_page_is_asked_for_once_and_seen_in_order() {
        let asked = Mutex::new(Vec::new());
        let mut seen = Vec::new();
        let serve = async |params: ListParams| {
            let token = params.continue_token.clone();
            asked.lock().unwrap().push(token.clone());
            Ok(match token.as_deref() {
                None => page(&[1, 2], Some("more")),
                Some("more") => page(&[3], Some("")),
                other => panic!("{other:?}"),
            })
        };
        pages(|| "list".into(), ListParams::default(), serve, |item| seen.push(item)).await.unwrap();
        assert_eq!((seen, asked.into_inner().unwrap()), (vec![1, 2, 3], vec![None, Some("more".to_owned())]));
    }
}

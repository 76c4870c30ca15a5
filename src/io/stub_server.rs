//! A server with the answers of a test.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Method and path.
    pub(crate) line: String,
    /// The body. Empty if the request had none.
    pub(crate) body: String,
}

/// Returns the HTTP status and the body that answer a request.
pub(crate) trait Answer: Fn(&Seen) -> (u16, Value) + Send + Sync + 'static {}

impl<F: Fn(&Seen) -> (u16, Value) + Send + Sync + 'static> Answer for F {}

/// A running server. It ends with the runtime of the test.
pub(crate) struct StubServer {
    /// Its URL.
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl StubServer {
    /// Starts a server. `date`: the `Date` header of all answers.
    pub(crate) async fn start(date: Option<String>, answer: impl Answer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (requests, answer) = (seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, date, answer) = (requests.clone(), date.clone(), answer.clone());
                let service =
                    service_fn(move |request| respond(request, requests.clone(), date.clone(), answer.clone()));
                tokio::spawn(
                    async move { http1::Builder::new().serve_connection(TokioIo::new(stream), service).await },
                );
            }
        });
        Self { url, seen }
    }

    /// Returns the requests so far, in the order of their arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    requests: Arc<Mutex<Vec<Seen>>>,
    date: Option<String>,
    answer: Arc<impl Answer>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let seen = Seen { line, body: String::from_utf8_lossy(&body).into_owned() };
    let (status, body) = answer(&seen);
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    if let Some(date) = date {
        response = response.header("date", date);
    }
    Ok(response.body(Full::from(body.to_string())).unwrap())
}

/// Returns the answer for an absent object.
pub(crate) fn not_found(plural: &str, name: &str) -> (u16, Value) {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("{plural} {name:?} not found"), "details": { "kind": plural, "name": name },
    });
    (404, status)
}

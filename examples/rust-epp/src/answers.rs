//! The answers of an endpoint picker, each built in one place.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpBody, ImmediateResponse,
    ProcessingResponse, StreamedBodyResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};

const DESTINATION_NAMESPACE: &str = "envoy.lb";
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Bytes of a body in one answer: with the message around them less than the 64 KiB that Envoy recommends.
const CHUNK: usize = 62_000;

/// Names the destination in the header and in the metadata, with one value. The header goes as `raw_value`, which Envoy
/// reads, and replaces what the client may have sent.
pub fn steer(endpoint: &str) -> ProcessingResponse {
    let header = HeaderValue { key: DESTINATION.into(), raw_value: endpoint.into(), ..Default::default() };
    let option = HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
        ..Default::default()
    };
    let common = CommonResponse {
        header_mutation: Some(HeaderMutation { set_headers: vec![option], ..Default::default() }),
        clear_route_cache: true, // the route may depend on the header
        ..Default::default()
    };
    let named = structure(DESTINATION, Kind::StringValue(endpoint.into()));
    ProcessingResponse {
        response: Some(Response::RequestHeaders(HeadersResponse { response: Some(common) })),
        dynamic_metadata: Some(structure(DESTINATION_NAMESPACE, Kind::StructValue(named))),
        ..Default::default()
    }
}

/// Ends the request with an HTTP status. A gRPC status would not do: the data plane would choose its own.
pub fn refuse(status: i32, reason: &str) -> ProcessingResponse {
    let immediate = ImmediateResponse {
        status: Some(HttpStatus { code: status }),
        body: format!("{reason}\n").into(),
        details: reason.replace(' ', "_"),
        ..Default::default()
    };
    ProcessingResponse { response: Some(Response::ImmediateResponse(immediate)), ..Default::default() }
}

/// Answers a piece of a body: in full duplex with the same bytes in chunks, else with "unchanged".
pub fn forward(body: &HttpBody, duplex: bool) -> Vec<BodyResponse> {
    if !duplex {
        return vec![BodyResponse { response: Some(CommonResponse::default()) }];
    }
    let count = body.body.len().div_ceil(CHUNK).max(1);
    let chunk = |number: usize| {
        let end = body.body.len().min((number + 1) * CHUNK);
        let streamed = StreamedBodyResponse {
            body: body.body[number * CHUNK..end].to_vec(),
            end_of_stream: body.end_of_stream && number + 1 == count,
            ..Default::default()
        };
        let mutation = BodyMutation { mutation: Some(Mutation::StreamedResponse(streamed)) };
        let common = CommonResponse { body_mutation: Some(mutation), ..Default::default() };
        BodyResponse { response: Some(common) }
    };
    (0..count).map(chunk).collect()
}

fn structure(key: &str, kind: Kind) -> Struct {
    Struct { fields: HashMap::from([(key.into(), Value { kind: Some(kind) })]) }
}

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func unstructuredObject(content map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: content}
}

// fixedPool has endpoints that do not change, and one objective, "batch", that may be shed.
type fixedPool []Endpoint

func (p fixedPool) Endpoints() []Endpoint { return p }

func (p fixedPool) Priority(objective string) int {
	if objective == "batch" {
		return -1
	}
	return 0
}

// open starts a server for this pool and opens a stream to it.
func open(t *testing.T, pool fixedPool) extproc.ExternalProcessor_ProcessClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	busy := map[Endpoint]Gauges{first: {Queue: 100}, second: {Queue: 100}}
	extproc.RegisterExternalProcessorServer(server, &Processor{pool: pool, picker: loads(busy)})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := extproc.NewExternalProcessorClient(connection).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func send(t *testing.T, stream extproc.ExternalProcessor_ProcessClient, messages ...*extproc.ProcessingRequest) {
	t.Helper()
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			t.Fatal(err)
		}
	}
}

// receive reads n answers, or all until the end of the stream if n is 0.
func receive(t *testing.T, stream extproc.ExternalProcessor_ProcessClient, n int) []*extproc.ProcessingResponse {
	t.Helper()
	var answers []*extproc.ProcessingResponse
	for n == 0 || len(answers) < n {
		answer, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	return answers
}

func requestHeaders(end bool, headers ...*corev3.HeaderValue) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extproc.HttpHeaders{Headers: &corev3.HeaderMap{Headers: headers}, EndOfStream: end},
	}}
}

func requestBody(body []byte, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
		RequestBody: &extproc.HttpBody{Body: body, EndOfStream: end},
	}}
}

func responseBody(body []byte, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: body, EndOfStream: end},
	}}
}

func withMetadata(message *extproc.ProcessingRequest, namespace, key string, value *structpb.Value) *extproc.ProcessingRequest {
	message.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		namespace: {Fields: map[string]*structpb.Value{key: value}},
	}}
	return message
}

func withModes(message *extproc.ProcessingRequest, mode filter.ProcessingMode_BodySendMode) *extproc.ProcessingRequest {
	message.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode}
	return message
}

// expectDestination checks that the answer names this endpoint, in both places alike.
func expectDestination(t *testing.T, answer *extproc.ProcessingResponse, want string) {
	t.Helper()
	options := answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
	if len(options) != 1 || options[0].GetHeader().GetKey() != destinationKey {
		t.Fatalf("header mutation: %v in %v", options, answer)
	}
	if got := string(options[0].GetHeader().GetRawValue()); got != want || options[0].GetHeader().GetValue() != "" {
		t.Errorf("header: got %q, want %q", got, want)
	}
	if options[0].GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
		t.Errorf("append action: %v", options[0].GetAppendAction())
	}
	named := answer.GetDynamicMetadata().GetFields()[destinationNamespace].GetStructValue().GetFields()[destinationKey]
	if named.GetStringValue() != want {
		t.Errorf("metadata: got %v, want %q", named, want)
	}
}

func TestFullDuplexRequest(t *testing.T) {
	stream := open(t, fixedPool{first})
	body := bytes.Repeat([]byte("0123456789"), 20_000)
	send(t, stream, withModes(requestHeaders(false), filter.ProcessingMode_FULL_DUPLEX_STREAMED),
		requestBody(body[:130_000], false), requestBody(body[130_000:], false), requestBody(nil, true))
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answers := receive(t, stream, 0)
	expectDestination(t, answers[0], "127.0.0.11:8000")
	var echoed []byte
	for i, answer := range answers[1:] {
		chunk := answer.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		if chunk == nil || len(chunk.GetBody()) > 62_000 {
			t.Fatalf("answer %d: no streamed response, or too large: %d bytes", i+1, len(chunk.GetBody()))
		}
		if last := i == len(answers)-2; chunk.GetEndOfStream() != last {
			t.Errorf("answer %d of %d: end of stream is %v", i+1, len(answers)-1, chunk.GetEndOfStream())
		}
		echoed = append(echoed, chunk.GetBody()...)
	}
	if !bytes.Equal(echoed, body) {
		t.Errorf("%d bytes came back of %d, or others", len(echoed), len(body))
	}
}

func TestBufferedBodiesStayUnchanged(t *testing.T) {
	stream := open(t, fixedPool{v6})
	send(t, stream, withModes(requestHeaders(false), filter.ProcessingMode_BUFFERED))
	expectDestination(t, receive(t, stream, 1)[0], "[fd00::1]:8000")
	send(t, stream, requestBody([]byte("{}"), true))
	response := receive(t, stream, 1)[0].GetRequestBody().GetResponse()
	if response == nil || response.GetBodyMutation() != nil {
		t.Errorf("got %v, want an answer without mutation", response)
	}
}

func TestResponseAndTrailers(t *testing.T) {
	stream := open(t, fixedPool{first})
	headers := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{}}}
	send(t, stream, withMetadata(headers, destinationNamespace, servedKey, structpb.NewNumberValue(1)))
	if receive(t, stream, 1)[0].GetResponseHeaders() == nil {
		t.Error("response headers, first in the stream, are not answered")
	}
	for _, event := range []string{"data: 1\n\n", "data: [DONE]\n\n"} {
		send(t, stream, responseBody([]byte(event), false))
		chunk := receive(t, stream, 1)[0].GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		if string(chunk.GetBody()) != event || chunk.GetEndOfStream() {
			t.Errorf("event %q became %v", event, chunk)
		}
	}
	send(t, stream, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{}})
	if receive(t, stream, 1)[0].GetResponseTrailers() == nil {
		t.Error("response trailers are not answered")
	}
	send(t, stream, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{}})
	if receive(t, stream, 1)[0].GetRequestTrailers() == nil {
		t.Error("request trailers are not answered")
	}
}

func TestRefusalIsTheLastAnswer(t *testing.T) {
	batch := &corev3.HeaderValue{Key: "X-Gateway-Inference-Objective", RawValue: []byte("batch")}
	old := &corev3.HeaderValue{Key: objectiveHeader, Value: "batch"}
	emptySubset := withMetadata(requestHeaders(true), subsetNamespace, subsetKey, structpb.NewListValue(&structpb.ListValue{}))
	for name, c := range map[string]struct {
		pool    fixedPool
		message *extproc.ProcessingRequest
		code    int
	}{
		"no endpoints":              {nil, requestHeaders(true), 503},
		"empty subset":              {fixedPool{first}, emptySubset, 503},
		"sheddable":                 {fixedPool{first, second}, requestHeaders(false, batch), 429},
		"sheddable, value in value": {fixedPool{first, second}, requestHeaders(false, old), 429},
	} {
		stream := open(t, c.pool)
		send(t, stream, c.message)
		answers := receive(t, stream, 0) // until the server ends the stream, with gRPC's OK
		immediate := answers[0].GetImmediateResponse()
		if len(answers) != 1 || int(immediate.GetStatus().GetCode()) != c.code || answers[0].GetDynamicMetadata() != nil {
			t.Errorf("%s: got %v, want one answer with %d", name, answers, c.code)
		}
	}
}

func TestSubsetSteersBodylessRequests(t *testing.T) {
	stream := open(t, fixedPool{first, v6})
	list, err := structpb.NewList([]any{"127.0.0.11:8000"})
	if err != nil {
		t.Fatal(err)
	}
	send(t, stream, withMetadata(requestHeaders(true), subsetNamespace, subsetKey, structpb.NewListValue(list)))
	expectDestination(t, receive(t, stream, 1)[0], "127.0.0.11:8000")
}

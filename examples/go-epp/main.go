// Command go-epp is a small endpoint picker for the Endpoint Picker Protocol 1.0.0.
//
// It learns the pods of one InferencePool from Kubernetes (pool.go), scrapes their load (metrics.go), picks the
// least loaded one (picker.go), and says so over Envoy's ext_proc (process.go). This file puts the parts together.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// maxMessage is larger than gRPC's 4 MiB: a data plane may forward a buffered body in one message.
	maxMessage = 16 << 20
	// drainTime is how long open streams may go on after SIGTERM.
	drainTime = 2 * time.Second
)

type options struct {
	listen    string
	name      string
	namespace string
	tls       bool
	interval  time.Duration
	fallbacks int
}

func main() {
	var opts options
	flag.StringVar(&opts.listen, "listen", ":9002", "address of the ext_proc and health service")
	flag.StringVar(&opts.name, "pool-name", "", "name of the InferencePool (required)")
	flag.StringVar(&opts.namespace, "pool-namespace", "default", "namespace of the InferencePool and of its pods")
	flag.BoolVar(&opts.tls, "tls", true, "serve TLS with a self-signed certificate made at start")
	flag.DurationVar(&opts.interval, "scrape-interval", 100*time.Millisecond, "pause between two scrapes of one endpoint")
	flag.IntVar(&opts.fallbacks, "fallbacks", 0, "endpoints named after the first; for data planes that walk a list")
	flag.Parse()
	if opts.name == "" || opts.fallbacks < 0 || opts.interval <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "go-epp: --pool-name is required, --scrape-interval is above 0, --fallbacks is not negative")
		flag.Usage()
		os.Exit(2)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, opts); err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, opts options) error {
	config, err := kubeConfig()
	if err != nil {
		return fmt.Errorf("no Kubernetes API; set KUBECONFIG: %w", err)
	}
	listener, err := net.Listen("tcp", opts.listen)
	if err != nil {
		return err
	}

	healthServer := newHealth()
	scraper := NewScraper(opts.interval)
	pool, err := NewPool(config, opts.namespace, opts.name, func(endpoints []Endpoint, known bool) {
		scraper.Follow(ctx, endpoints)
		setReady(healthServer, known)
	})
	if err != nil {
		return err
	}
	go pool.Run(ctx)

	serverOptions := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage)}
	if opts.tls {
		certificate, err := selfSigned()
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		serverOptions = append(serverOptions, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(serverOptions...)
	extproc.RegisterExternalProcessorServer(server, &Processor{
		pool:   pool,
		picker: &Picker{Load: scraper.Gauges, Fallbacks: opts.fallbacks},
	})
	healthv1.RegisterHealthServer(server, healthServer)

	go func() {
		<-ctx.Done()
		healthServer.Shutdown()
		timer := time.AfterFunc(drainTime, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	slog.Info("serving", "address", listener.Addr().String(), "tls", opts.tls, "pool", opts.namespace+"/"+opts.name)
	if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// kubeConfig follows KUBECONFIG, then ~/.kube/config, then the pod's service account.
func kubeConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	return rest.AddUserAgent(config, "go-epp"), nil
}

// readyServices are the health names that mean "an ext_proc request can be answered"; "" is the server as a whole.
var readyServices = []string{"", "readiness", extproc.ExternalProcessor_ServiceDesc.ServiceName}

func newHealth() *health.Server {
	server := health.NewServer()
	server.SetServingStatus("liveness", healthv1.HealthCheckResponse_SERVING)
	setReady(server, false)
	return server
}

func setReady(server *health.Server, ready bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, name := range readyServices {
		server.SetServingStatus(name, status)
	}
}

// selfSigned makes a certificate that lives as long as the process may; data planes do not verify it by default.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "go-epp"},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

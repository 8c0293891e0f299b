// Command deviceplugin offers simulated devices of one resource to a kubelet.
//
// A container that gets devices sees their ids in NVIDIA_VISIBLE_DEVICES, as NVIDIA's own plugin
// sets it. The kubelet removes all sockets when it starts, so the plugin registers again whenever
// its socket is gone.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends all devices once: they never change.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		visible := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
		response.ContainerResponses = append(
			response.ContainerResponses, &api.ContainerAllocateResponse{Envs: visible})
	}
	return response, nil
}

// serve registers with the kubelet, and returns when its socket is removed.
func serve(directory, resource string, served *plugin) error {
	socket := filepath.Join(directory, "gpufence-test.sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	kubelet := "unix://" + filepath.Join(directory, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(socket), ResourceName: resource})
	if err != nil {
		return err
	}
	log.Printf("registered %d devices of %s", len(served.devices), resource)
	for {
		if _, err := os.Stat(socket); err != nil {
			return fmt.Errorf("the kubelet has removed the socket")
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func main() {
	directory := flag.String("directory", api.DevicePluginPath, "the kubelet's device-plugins directory")
	resource := flag.String("resource", "nvidia.com/gpu", "the name of the resource")
	count := flag.Int("count", 4, "how many devices to offer")
	flag.Parse()
	served := &plugin{}
	for number := range *count {
		served.devices = append(
			served.devices, &api.Device{ID: fmt.Sprintf("gpu-%d", number), Health: api.Healthy})
	}
	for {
		log.Printf("%v; registering again", serve(*directory, *resource, served))
		time.Sleep(time.Second)
	}
}

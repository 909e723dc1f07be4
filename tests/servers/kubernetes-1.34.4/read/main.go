// Command read reads configurations of nodes as the kubelet and kube-proxy of this module's Kubernetes do: strictly, with
// their defaults, their validation and their feature gates, and the kubelet's flags by its own parser.
//
// It takes a folder with a folder for each case, with kubelet.conf, kubelet.json (the words of its command line) and
// kube-proxy.conf, as far as they are there. It prints a line for each that is refused, and at last how many it read.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	proxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	proxyscheme "k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
	proxyvalidation "k8s.io/kubernetes/pkg/proxy/apis/config/validation"
)

// kubelet reads a configuration as loadConfigFile and NewKubeletCommand of cmd/kubelet/app/server.go do.
func kubelet(data []byte) error {
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return err
	}
	object, _, err := codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return err
	}
	config, ok := object.(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return fmt.Errorf("it is a %T", object)
	}
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := gates.SetFromMap(config.FeatureGates); err != nil {
		return err
	}
	return kubeletvalidation.ValidateKubeletConfiguration(config, gates)
}

// flags parses the kubelet's command line as NewKubeletCommand of cmd/kubelet/app/server.go does.
func flags(data []byte) error {
	var words []string
	if err := json.Unmarshal(data, &words); err != nil {
		return err
	}
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.Usage = func() {}
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	own := options.NewKubeletFlags()
	own.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	if err := set.Parse(words); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unknown words %q", set.Args())
	}
	return options.ValidateKubeletFlags(own)
}

// kubeProxy reads a configuration as loadConfig and Validate of cmd/kube-proxy/app do.
func kubeProxy(data []byte) error {
	object, _, err := proxyscheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return err
	}
	config, ok := object.(*proxyconfig.KubeProxyConfiguration)
	if !ok {
		return fmt.Errorf("it is a %T", object)
	}
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := gates.SetFromMap(config.FeatureGates); err != nil {
		return err
	}
	return proxyvalidation.Validate(config).ToAggregate()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: read FOLDER")
		os.Exit(2)
	}
	cases, err := os.ReadDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	readers := []struct {
		name string
		read func([]byte) error
	}{{"kubelet.conf", kubelet}, {"kubelet.json", flags}, {"kube-proxy.conf", kubeProxy}}
	count, refused := 0, 0
	for _, one := range cases {
		for _, reader := range readers {
			data, err := os.ReadFile(filepath.Join(os.Args[1], one.Name(), reader.name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = reader.read(data)
			}
			count++
			if err != nil {
				refused++
				fmt.Printf("refused %s %s: %q\n", one.Name(), reader.name, err.Error())
			}
		}
	}
	fmt.Printf("read %d, refused %d\n", count, refused)
}

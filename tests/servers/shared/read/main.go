// Command read reads configurations of nodes as the kubelet and kube-proxy of this module's Kubernetes do: strictly, with
// their defaults, their validation and their feature gates, and the kubelet's flags by its own parser.
//
// It takes a folder with a folder for each case, with kubelet.conf, kubelet.json (the words of its command line) and
// kube-proxy.conf, as far as they are there. It prints a line for each that is refused, and at last how many it read.
//
// With the word "known" in place of a folder it prints what both programs know: their feature gates, the kubelet's flags,
// and the fields of their configurations.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	metricsfeatures "k8s.io/component-base/metrics/features"
	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	proxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	proxyscheme "k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
	proxyvalidation "k8s.io/kubernetes/pkg/proxy/apis/config/validation"
)

// The gates that cmd/kubelet/app/server.go and cmd/kube-proxy/app/server.go add to those of their packages.
func init() {
	gates := utilfeature.DefaultMutableFeatureGate
	if err := errors.Join(logsapi.AddFeatureGates(gates), metricsfeatures.AddFeatureGates(gates)); err != nil {
		panic(err)
	}
}

// kubelet reads a configuration as loadConfigFile and NewKubeletCommand of cmd/kubelet/app/server.go do. A gate that it does
// not know makes it panic while it sets its defaults.
func kubelet(data []byte) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v", why)
		}
	}()
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

// kubeletFlags are those of NewKubeletCommand in cmd/kubelet/app/server.go.
func kubeletFlags() (*pflag.FlagSet, *options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.Usage = func() {}
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, nil, err
	}
	own := options.NewKubeletFlags()
	own.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	set.BoolP("help", "h", false, "")
	return set, own, config, nil
}

// flags parses the kubelet's command line as NewKubeletCommand does. Its gates are set with those of the configuration.
func flags(data []byte) error {
	var words []string
	if err := json.Unmarshal(data, &words); err != nil {
		return err
	}
	set, own, config, err := kubeletFlags()
	if err != nil {
		return err
	}
	if err := set.Parse(words); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unknown words %q", set.Args())
	}
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(config.FeatureGates); err != nil {
		return err
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

// fields prints a line for each field below a type, by the names of its JSON: a word, its path, and its type.
func fields(word, path string, kind reflect.Type) {
	switch kind.String() {
	case "v1.Duration":
		fmt.Println(word, path, "duration")
		return
	case "v1.TimeOrMetaDuration":
		fmt.Println(word, path, "duration-or-number")
		return
	case "v1.Time":
		fmt.Println(word, path, "string")
		return
	case "resource.Quantity", "resource.QuantityValue":
		fmt.Println(word, path, "quantity")
		return
	}
	switch kind.Kind() {
	case reflect.Pointer:
		fields(word, path, kind.Elem())
	case reflect.Slice:
		fmt.Println(word, path, "list")
		fields(word, path+"[]", kind.Elem())
	case reflect.Map:
		fmt.Println(word, path, "map")
		fields(word, path+"{}", kind.Elem())
	case reflect.Struct:
		if path != "" {
			fmt.Println(word, path, "map")
		}
		for i := range kind.NumField() {
			field := kind.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case name == "":
				// It is inlined.
				fields(word, path, field.Type)
			case path == "":
				fields(word, name, field.Type)
			default:
				fields(word, path+"."+name, field.Type)
			}
		}
	default:
		fmt.Println(word, path, kind.Kind())
	}
}

// known prints what the programs know, a line each.
func known() error {
	set, _, _, err := kubeletFlags()
	if err != nil {
		return err
	}
	set.VisitAll(func(flag *pflag.Flag) {
		fmt.Println("kubelet-flag", flag.Name, flag.Value.Type())
	})
	// Both programs have the same: the kubelet's packages bring those of metrics, too.
	for name, gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		value := "free"
		if gate.LockToDefault {
			value = fmt.Sprint(gate.Default)
		}
		fmt.Println("gate", name, value)
	}
	fields("kubelet-field", "", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	fields("kube-proxy-field", "", reflect.TypeFor[proxyv1alpha1.KubeProxyConfiguration]())
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: read FOLDER | known")
		os.Exit(2)
	}
	if os.Args[1] == "known" {
		if err := known(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
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

# Facts of the group `network`: interfaces, fast network devices, and GPUDirect.

# network_line FILE: print the first line of a file, or an empty line.
network_line() { head -n 1 -- "$1" 2>/dev/null || printf '\n'; }

for network_port in "$root"/sys/class/infiniband/*/ports/*; do
    if ! [ -r "$network_port/state" ]; then continue; fi
    network_device=${network_port%/ports/*}
    value "port.${network_device##*/}/${network_port##*/}" "state=$(network_line "$network_port/state")
rate=$(network_line "$network_port/rate")
layer=$(network_line "$network_port/link_layer")
driver=$(sed -n 's/^DRIVER=//p' "$network_device/device/uevent" 2>/dev/null)"
done
for network_device in "$root"/sys/class/cxi/*; do
    if [ -e "$network_device" ]; then value "cxi.${network_device##*/}" present; fi
done
for network_device in "$root"/sys/class/net/*; do
    # bonding_masters is a file, not an interface.
    if ! [ -d "$network_device" ]; then continue; fi
    value "interface.${network_device##*/}" "$(network_line "$network_device/operstate")
$(network_line "$network_device/speed")"
done
# The device files by which programs reach the hardware without the kernel.
for network_device in "$root"/dev/infiniband/uverbs* "$root"/dev/hfi1_* "$root"/dev/cxi*; do
    if ! [ -e "$network_device" ]; then continue; fi
    if [ -r "$network_device" ] && [ -w "$network_device" ]; then network_access=usable; else network_access=refused; fi
    value "device-file.${network_device#"$root"}" "$network_access"
done
for network_module in nvidia nvidia_peermem nv_peer_mem amdgpu; do
    if [ -d "$root/sys/module/$network_module" ]; then value "module.$network_module" loaded; fi
done
file_fact nvidia-module /proc/driver/nvidia/version
file_fact kernel-release /proc/sys/kernel/osrelease

#!/bin/sh
# Runs a compiler (`kept.sh COMPILER ARGUMENT...`, a launcher of CMake), and keeps each object that
# it makes in a folder outside the container: a build that was interrupted goes on where it
# stopped. The folder is another one for other sources, packages or base images, so that the
# command and its working directory identify an object. The name of a kept object has the SHA-256
# of its content: half of an object is never used. Without the folder, it only runs the compiler.
set -eu

kept=${KEPT:-/mnt/compiled}
object='' dependencies='' compiles='' previous=''
for word; do
    case $previous in
        -o) object=$word ;;
        -MF) dependencies=$word ;;
    esac
    [ "$word" != -c ] || compiles=yes
    previous=$word
done
case $object in
    # CMake's trials of the compiler have random names.
    ''|*CMakeTmp*|*CMakeScratch*|*cmTC_*) compiles='' ;;
esac
if [ -z "$compiles" ] || [ ! -w "$kept" ]; then exec "$@"; fi

key=$(printf '%s\n' "$PWD" "$@" | sha256sum | cut -c1-64)
for found in "$kept/$key"-*.tar; do
    [ -f "$found" ] || continue
    sum=$(sha256sum < "$found" | cut -c1-64)
    if [ "$found" = "$kept/$key-$sum.tar" ]; then
        tar -xmf "$found"  # -m: newer than the source
        exit 0
    fi
    rm -f "$found"
done

"$@"
part=$(mktemp "$kept/part-XXXXXXXX")
if [ -n "$dependencies" ] && [ -f "$dependencies" ]; then
    tar -cf "$part" "$object" "$dependencies"
else
    tar -cf "$part" "$object"
fi
sum=$(sha256sum < "$part" | cut -c1-64)
mv "$part" "$kept/$key-$sum.tar"

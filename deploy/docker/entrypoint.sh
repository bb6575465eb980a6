#!/bin/bash
# The entry point of the image. Spark on Kubernetes starts its pods with the argument "executor", and
# in cluster mode the driver's pod with "driver". Any other arguments are a command, which is run.
set -euo pipefail

# Only for these two: with SPARK_HOME in the environment penstock could not start Java itself.
spark_home() {
    python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))'
}

case "${1:-}" in
driver)
    shift
    exec "$(spark_home)/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    # Spark passes the options of Java as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    options=()
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_$number"
        [ -n "${!name+set}" ] || break
        options+=("${!name}")
    done
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$(spark_home)/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac

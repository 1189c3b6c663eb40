# SPDX-License-Identifier: Apache-2.0
# Configures copies of the project in which one file includes what its folder must not use.
#   cmake -DSOURCE=... -DWORK=... -DGENERATOR=... -P includes_test.cmake
file(REMOVE_RECURSE ${WORK})

# Configures a copy with a line appended to a file; `message` is what configuring says then, empty if it succeeds.
function(configure_with file line message)
    file(COPY ${SOURCE}/lib ${SOURCE}/capi ${SOURCE}/cuda ${SOURCE}/mpi ${SOURCE}/cmake ${SOURCE}/include ${SOURCE}/CMakeLists.txt
         DESTINATION ${WORK}/project)
    file(COPY ${SOURCE}/apps/minim DESTINATION ${WORK}/project/apps)
    if(NOT EXISTS ${WORK}/project/${file})
        message(FATAL_ERROR "there is no ${file}")
    endif()
    file(APPEND ${WORK}/project/${file} "${line}\n")
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/project -B ${WORK}/build -G ${GENERATOR} -DBUILD_TESTING=OFF
                            -DMINIM_CUDA=OFF -DMINIM_BUILD_PROGRAMS=OFF
                    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake wraps long lines
    if(message STREQUAL "" AND NOT code EQUAL 0)
        message(FATAL_ERROR "does not configure: ${output}")
    endif()
    if(NOT message STREQUAL "" AND (code EQUAL 0 OR NOT output MATCHES "${message}"))
        message(FATAL_ERROR "'${line}' in ${file} is not refused with '${message}': ${output}")
    endif()
    file(REMOVE_RECURSE ${WORK}/project)
endfunction()

configure_with(cuda/fast/operations.inl "" "")
configure_with(cuda/fast/operations.inl "#include \"model/config.h\"" "operations.inl includes model/; cuda may use")
configure_with(cuda/fast/attend.cu "# include \"kv/sequence.h\"" "attend.cu includes kv/; cuda may use")
configure_with(cuda/cuda_device.cpp "#include <engine/engine.h>" "cuda_device.cpp includes engine/; cuda may use")
configure_with(capi/model.cpp "#include \"cpu/cpu_backend.h\"" "model.cpp includes cpu/; capi may use")
configure_with(lib/kv/sequence.h "#include \"model/config.h\"" "sequence.h includes model/; layer kv may use")
configure_with(apps/minim/main.cpp "#include \"engine/engine.h\"" "main.cpp includes engine/; apps may use")
file(REMOVE_RECURSE ${WORK})

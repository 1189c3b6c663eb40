# SPDX-License-Identifier: Apache-2.0
# Installs the library into a folder of its own and builds examples/c against it, through find_package and pkg-config,
# then runs both.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DMODEL=... -DGENERATOR=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
# The package's versions agree with the SONAME: any 0.x does for another one of them that is not newer.
foreach(wanted 0.0.9 0.1.0)
    execute_process(COMMAND ${CMAKE_COMMAND} -DPREFIX=${prefix} -DVERSION=${wanted} -P ${CMAKE_CURRENT_LIST_DIR}/version_test.cmake
                    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/examples/c -B ${WORK}/build -G ${GENERATOR}
                        -DCMAKE_PREFIX_PATH=${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/answer ${MODEL} OUTPUT_VARIABLE answer COMMAND_ERROR_IS_FATAL ANY)
if(NOT answer MATCHES "Paris")
    message(FATAL_ERROR "the installed library answers: ${answer}")
endif()

find_program(pkg_config pkg-config)
if(pkg_config)
    file(GLOB_RECURSE pc ${prefix}/*/minim.pc)
    get_filename_component(pc_folder ${pc} DIRECTORY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs minim
                    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    execute_process(COMMAND cc ${SOURCE}/examples/c/answer.c ${flags} -o ${WORK}/answer_pc COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --static --libs minim
                    OUTPUT_VARIABLE static_flags COMMAND_ERROR_IS_FATAL ANY)
    file(READ ${pc} text)
    if(text MATCHES "-lhwloc" OR (text MATCHES "Requires.private: hwloc" AND NOT static_flags MATCHES "-lhwloc"))
        message(FATAL_ERROR "hwloc is not asked for through its own package: ${text} ${static_flags}")
    endif()
    file(GLOB_RECURSE so ${prefix}/*/libminim.so)
    get_filename_component(folder ${so} DIRECTORY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${folder} ${WORK}/answer_pc ${MODEL} OUTPUT_VARIABLE answer
                    COMMAND_ERROR_IS_FATAL ANY)
    if(NOT answer MATCHES "Paris")
        message(FATAL_ERROR "the library found by pkg-config answers: ${answer}")
    endif()
endif()
